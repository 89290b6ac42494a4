import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type AttemptSchema,
  type DeliverySchema,
  type DeliveryService,
  DeliveryState,
  DeliveryStateSchema,
  GetDeliveryRequestSchema,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import {
  type AttemptRow,
  type DeliveryRow,
  type DeliveryStateName,
  getDelivery,
  listDeliveries,
} from "../../db/deliveries.ts";
import { DomainError } from "../../domain-error.ts";
import type { ApiContext } from "../context.ts";
import { invalidFields } from "../errors.ts";
import { assertFields, isUuid } from "./messages.ts";

const DEFAULT_PAGE = 100;
const MAX_PAGE = 1_000;

/** The column's name of each state, by the number in the proto. */
const stateNames = new Map(
  DeliveryStateSchema.values
    .filter((value) => value.number !== DeliveryState.UNSPECIFIED)
    .map((value) => [
      value.number,
      value.name.slice("DELIVERY_STATE_".length).toLowerCase() as DeliveryStateName,
    ]),
);
const stateNumbers = new Map([...stateNames].map(([number, name]) => [name, number as DeliveryState]));

/** Tells what became of each delivery. */
export function deliveryService({ db }: ApiContext): ServiceImpl<typeof DeliveryService> {
  return {
    async listDeliveries(request) {
      const limit = pageSize(request.pageSize);
      if (request.eventId !== undefined && !isUuid(request.eventId)) {
        throw invalidFields([{ field: "event_id", description: "must be the id of an event, a UUID" }]);
      }
      const found = await listDeliveries(
        db,
        {
          webhookId: request.webhookId,
          eventId: request.eventId,
          states: request.states.map(stateName),
          before: request.pageToken === "" ? undefined : readPageToken(request.pageToken),
        },
        // One more tells whether there is another page.
        limit + 1,
      );
      const page = found.slice(0, limit);
      const last = page.at(-1);
      return {
        deliveries: page.map(deliveryMessage),
        nextPageToken: found.length > limit && last ? pageToken(last.id) : "",
      };
    },

    async getDelivery(request) {
      assertFields(GetDeliveryRequestSchema, request);
      if (!isUuid(request.deliveryId)) {
        throw invalidFields([{ field: "delivery_id", description: "must be the id of a delivery, a UUID" }]);
      }
      const found = await getDelivery(db, request.deliveryId);
      if (!found) {
        throw new DomainError("NOT_FOUND", `there is no delivery ${request.deliveryId}`, {
          reason: "DELIVERY_NOT_FOUND",
        });
      }
      return { delivery: deliveryMessage(found.delivery), attempts: found.attempts.map(attemptMessage) };
    },
  };
}

function pageSize(asked: number): number {
  if (asked < 0 || asked > MAX_PAGE) {
    throw invalidFields([{ field: "page_size", description: `must be from 1 to ${MAX_PAGE}` }]);
  }
  return asked || DEFAULT_PAGE;
}

function stateName(state: number): DeliveryStateName {
  const name = stateNames.get(state);
  if (!name) throw invalidFields([{ field: "states", description: `holds ${state}, which is not a state` }]);
  return name;
}

/** Names where a page ended; callers are not meant to look inside. */
function pageToken(id: string): string {
  return Buffer.from(id.replaceAll("-", ""), "hex").toString("base64url");
}

function readPageToken(token: string): string {
  const hex = Buffer.from(token, "base64url").toString("hex");
  const id = hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  if (!isUuid(id)) {
    throw invalidFields([
      { field: "page_token", description: "must be the next_page_token of the page before" },
    ]);
  }
  return id;
}

function deliveryMessage(row: DeliveryRow): MessageInitShape<typeof DeliverySchema> {
  return {
    id: row.id,
    eventId: row.eventId,
    webhookId: row.webhookId,
    webhookProcess: row.process as WebhookProcess,
    url: row.url,
    state: stateNumbers.get(row.state) ?? DeliveryState.UNSPECIFIED,
    attemptCount: row.attempts,
    created: timestampFromDate(row.created),
    ...(row.retryAt ? { nextAttempt: timestampFromDate(row.retryAt) } : {}),
    ...(row.finished ? { finished: timestampFromDate(row.finished) } : {}),
    ...(row.reason === null ? {} : { reason: row.reason }),
  };
}

function attemptMessage(row: AttemptRow): MessageInitShape<typeof AttemptSchema> {
  return {
    number: row.number,
    started: timestampFromDate(row.started),
    durationMs: row.durationMs,
    ...(row.status === null ? {} : { status: row.status }),
    ...(row.error === null ? {} : { error: row.error }),
    ...(row.responseStart === null ? {} : { responseStart: row.responseStart }),
  };
}
