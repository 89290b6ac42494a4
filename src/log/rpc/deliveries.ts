import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type DeliveryRunSchema,
  type DeliverySchema,
  type DeliveryService,
  DeliveryState,
  type ListDeliveriesResponseSchema,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import { auditedCall } from "../../audit/index.ts";
import { hideSecrets, invalidField, stoppingError } from "../../calls/errors/index.ts";
import {
  callerOf,
  callerScope,
  inclusivePageToken,
  newerPageToken,
  optionalUuid,
  pageSize,
  pageToken,
} from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { present } from "../../contract/present.ts";
import { getEvent, readSubjects } from "../../events/index.ts";
import { openIncidentsOf } from "../../incidents/index.ts";
import type { Gate } from "../../keys/gate/index.ts";
import { type Db, readPrimary, type StaleReads } from "../../lib/pg/index.ts";
import { timeOfId } from "../../schema/index.ts";
import { countFailing } from "../../stats/index.ts";
import type { WorkflowUrl } from "../../temporal/index.ts";
import { getWebhook, type Sign } from "../../webhooks/index.ts";
import {
  type DeliveryRow,
  type DeliveryStateName,
  FAILURE_STATES,
  getDelivery,
  getSentRequest,
  type SentRequest,
} from "../deliveries.ts";
import { sentAgain, sentManyAgain } from "../delivery-changes.ts";
import type { DeliveryFilter, DeliveryPage } from "../list.ts";
import { searchDeliveries } from "../search.ts";
import { sendAgain, sendManyAgain } from "../send-again.ts";
import { readWaitingFor } from "../waiting-for.ts";
import {
  deliveryFilter,
  finalDeliveryFilter,
  STATE_NUMBERS,
  searchText,
  stateText,
} from "./delivery-filter.ts";
import { attemptMessage, deliveryMessage, eventMessage, requestMessage } from "./delivery-messages.ts";
import { exportDeliveries, exportOf } from "./export.ts";
import { failureReasonsMessage } from "./failure-reasons.ts";
import { OpenExports } from "./open-exports.ts";

/** The header of lists that were read from a replica: its lag, in milliseconds. */
const REPLICA_LAG_HEADER = "X-Replica-Lag-Ms";
/** The maximum number of items per page, and the number if a request names none. */
const PAGE_SIZES = { most: 1_000, usual: 100 };
/** The same for the deliveries that one SendAgainMany call examines. */
const AGAIN_SIZES = { most: 10_000, usual: 1_000 };
/** The number of deliveries that one ListFailureReasons call examines. */
const MAX_FAILURES_EXAMINED = 5_000;
const FAILURES: readonly DeliveryState[] = FAILURE_STATES.map((state) => STATE_NUMBERS[state]);

/** What the service of deliveries uses. */
export interface DeliveryServiceParts {
  db: Db;
  /** Reads lists of deliveries, from a replica if there is one. Defaults to reading `db`. */
  reads?: StaleReads;
  /** Called after each write that queued deliveries. Returns at once. */
  onQueued?: () => void;
  workflowUrl?: WorkflowUrl | undefined;
  /**
   * Finds the activity of a run that sends a delivery of a retry group, or a first attempt if null. Undefined if the
   * process has no Temporal; its result is undefined if Temporal does not respond, or does not say which.
   */
  findActivity?: (
    run: { workflowId: string; runId: string },
    group: number | null,
  ) => Promise<{ runId: string; eventId: string } | undefined>;
  /** The age in days from which deliveries cannot be resent. */
  retentionDays: number;
  sign: Sign;
}

/**
 * Lists, exports and resends deliveries.
 *
 * @param stopping ends ExportDeliveries
 */
export function deliveryService(
  {
    db,
    reads = readPrimary(db),
    onQueued = () => {},
    workflowUrl,
    findActivity,
    retentionDays,
    sign,
  }: DeliveryServiceParts,
  gate: Gate,
  stopping: AbortSignal,
): ServiceImpl<typeof DeliveryService> {
  const openExports = new OpenExports();
  return {
    async *exportDeliveries(request, handler) {
      const asked = exportOf(request);
      const scope = callerScope(handler, request.customer);
      const keyId = callerOf(handler).id;
      const leave = openExports.enter(keyId, handler.signal);
      try {
        for await (const response of exportDeliveries(reads, scope, asked, keyId)) {
          yield response;
          if (handler.signal.aborted) return;
          if (stopping.aborted) throw stoppingError();
          await gate.stillAuthorised(handler);
        }
      } finally {
        leave();
      }
    },

    async listDeliveries(request, handler) {
      const limit = pageSize(request.pageSize, PAGE_SIZES);
      const filter = {
        ...deliveryFilter(request),
        deliveryId: optionalUuid("delivery_id", request.deliveryId),
      };
      // Reads one more to detect another page.
      const search = searchText(request.search);
      const scope = callerScope(handler, request.customer);
      const { result, lagMs } = await reads.read(async (from) => {
        const found = await searchDeliveries(from, scope, filter, limit + 1, search);
        const subjects = await readSubjects(from, found.deliveries, callerOf(handler).id);
        return { found, subjects, waitingFor: await readWaitingFor(from, found.deliveries) };
      });
      if (lagMs !== null) handler.responseHeader.set(REPLICA_LAG_HEADER, String(lagMs));
      return pageMessage(result.found, limit, filter, (row) =>
        deliveryMessage(row, result.subjects, result.waitingFor),
      );
    },

    async sendAgain(request, handler) {
      const delivery = await auditedCall(db, handler, async (trx, record) => {
        const again = await sendAgain(trx, callerScope(handler), deliveryId(request), retentionDays);
        if (!again) throw noDelivery(request);
        const webhook = await getWebhook(trx, callerScope(handler), again.webhookId);
        await record(sentAgain(again, webhook ?? { customer: null, installedAppId: null }));
        return again;
      });
      onQueued();
      return {
        delivery: deliveryMessage(delivery, await readSubjects(db, [delivery], callerOf(handler).id)),
      };
    },

    async sendAgainMany(request, handler) {
      const limit = pageSize(request.pageSize, AGAIN_SIZES);
      const filter = finalDeliveryFilter(request, "states");
      if (filter.after !== undefined) {
        throw invalidField("page_token", "must be the next_page_token of the call before");
      }
      const search = searchText(request.search);
      const searched = search === undefined ? undefined : hideSecrets(request.search);
      const scope = callerScope(handler);
      const { sent, skipped, next } = await sendManyAgain(db, scope, filter, {
        limit,
        retentionDays,
        search,
        step: (startRound) =>
          auditedCall(db, handler, async (trx, record) => {
            const again = await startRound(trx);
            if (again.length > 0)
              await record(...(await sentManyAgain(trx, { ...filter, search: searched }, again)));
            return again;
          }),
      });
      if (sent > 0) onQueued();
      return { sentAgain: sent, skipped, nextPageToken: next === null ? "" : pageToken(next) };
    },

    async getDelivery(request, handler) {
      const scope = callerScope(handler);
      const found = await getDelivery(db, scope, deliveryId(request));
      if (!found) throw noDelivery(request);
      const sent = await getSentRequest(db, scope, found.delivery.id);
      const subjects = await readSubjects(db, [found.delivery], callerOf(handler).id);
      const incidents = await openIncidentsOf(db, scope, [found.delivery.webhookId]);
      return {
        delivery: deliveryMessage(found.delivery, subjects, await readWaitingFor(db, [found.delivery])),
        ...present({ incidentId: incidents.get(found.delivery.webhookId)?.id }),
        attempts: found.attempts.map((attempt) => attemptMessage(attempt, sent, sign)),
        ...(sent && { request: requestMessage(sent), event: eventMessage(sent.event, sent.payload, scope) }),
        ...(sent?.run && { run: await runMessage(sent.run, request.withActivity) }),
      };
    },

    async getEvent(request, handler) {
      const scope = callerScope(handler);
      const id = optionalUuid("event_id", request.eventId);
      const found = await getEvent(db, scope, id);
      if (!found) throw new DomainError("EVENT_NOT_FOUND", `there is no event ${id}`);
      const counts = new Map<DeliveryState, number>();
      for (const { state, count } of found.counts) {
        const number = STATE_NUMBERS[state as DeliveryStateName] ?? DeliveryState.UNSPECIFIED;
        counts.set(number, (counts.get(number) ?? 0) + count);
      }
      return {
        event: eventMessage(found.event, found.payload, scope),
        payload: found.payload ?? "",
        deliveries: [...counts].sort(([a], [b]) => a - b).map(([state, count]) => ({ state, count })),
      };
    },

    async listFailureReasons(request, handler) {
      const states = request.states.length > 0 ? request.states : FAILURES;
      const filter = deliveryFilter({ ...request, states, pageToken: "" });
      if (!states.every((state) => FAILURES.includes(state)))
        throw invalidField("states", `must be one or more of: ${FAILURE_STATES.map(stateText).join(", ")}`);
      const search = searchText(request.search);
      const scope = callerScope(handler, request.customer);
      const limit = MAX_FAILURES_EXAMINED + 1;
      const { eventId, process, from: since, to } = filter;
      const isCounted = [eventId, process, since, to, search].every((each) => each === undefined);
      const { result } = await reads.read(async (from) => {
        const page = await searchDeliveries(from, scope, filter, limit, search);
        const webhookIds = page.deliveries.map(({ webhookId }) => webhookId);
        const incidents = await openIncidentsOf(from, scope, webhookIds);
        const counts = isCounted ? await countFailing(from, scope, filter.webhookId) : null;
        const total = (filter.states ?? []).reduce((n, state) => n + (counts?.[state as "failed"] ?? 0n), 0n);
        return failureReasonsMessage(page, MAX_FAILURES_EXAMINED, incidents, counts && total);
      });
      return result;
    },
  };

  async function runMessage(
    { workflowId, runId, group }: NonNullable<SentRequest["run"]>,
    withActivity: boolean,
  ): Promise<MessageInitShape<typeof DeliveryRunSchema>> {
    const run = { workflowId, runId, ...present({ url: workflowUrl?.(workflowId, runId) }) };
    if (!withActivity || !workflowUrl) return run;
    const activity = await findActivity?.({ workflowId, runId }, group);
    if (!activity) return run;
    return { ...run, activityUrl: workflowUrl(workflowId, activity.runId, activity.eventId) };
  }
}

/** @param found includes one more than the page if there is another page in the direction of reading */
function pageMessage(
  { deliveries: found, searchedTo }: DeliveryPage,
  limit: number,
  { after, before }: DeliveryFilter,
  message: (row: DeliveryRow) => MessageInitShape<typeof DeliverySchema>,
): MessageInitShape<typeof ListDeliveriesResponseSchema> {
  const back = after !== undefined;
  const page = back ? found.slice(-limit) : found.slice(0, limit);
  const last = page.at(-1);
  const furthest = found.length > limit ? (back ? page[0] : last)?.id : undefined;
  /** The id from which the next page continues in the direction of reading; undefined if no delivery is left. */
  const end = searchedTo ?? furthest;
  // The page that this one continues from is adjacent to it, unless the search stopped early.
  const older = back && (searchedTo !== null || !last) ? inclusivePageToken(after) : undefined;
  const next = back ? last?.id : end;
  return present({
    deliveries: page.map(message),
    searchedBackTo: searchedTo === null ? null : timestampFromDate(timeOfId(searchedTo)),
    nextPageToken: older ?? (next === undefined ? "" : pageToken(next)),
    previousPageToken: !back ? newerThan(page, before) : end === undefined ? "" : newerPageToken(end),
  });
}

/** The token of the page newer than a page that was read towards older deliveries; empty if there is none. */
function newerThan([newest]: readonly DeliveryRow[], before: string | undefined): string {
  if (newest) return newerPageToken(newest.id);
  // The previous search ended next to `before`, and may have found it.
  return before === undefined ? "" : newerPageToken(idBefore(before));
}

function idBefore(id: string): string {
  const hex = (BigInt(`0x${id.replaceAll("-", "")}`) - 1n).toString(16).padStart(32, "0");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function deliveryId(request: { deliveryId: string }): string {
  return optionalUuid("delivery_id", request.deliveryId);
}

function noDelivery({ deliveryId }: { deliveryId: string }): DomainError {
  return new DomainError("DELIVERY_NOT_FOUND", `there is no delivery ${deliveryId}`);
}
