import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { Tracer } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { auditedCall, SERVICE_WIDE } from "../../audit/index.ts";
import { invalidFields, speaksJson } from "../../calls/errors/index.ts";
import {
  assertServiceWide,
  assertText,
  callerOf,
  callerScope,
  type LimitedScope,
  MAX_USER_ID_CHARACTERS,
  traceparentOfCall,
} from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { refreshEventTypes } from "../../event-types/index.ts";
import type { Gate } from "../../keys/gate/index.ts";
import { createEventQuota } from "../../keys/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import type { ApiInstruments } from "../../metrics/index.ts";
import { erasePayloads } from "../erase.ts";
import { newEvent } from "./new-event.ts";
import { publishedMessage } from "./published-message.ts";
import { PublishedSeries, type SeriesOptions } from "./published-series.ts";
import { createPublisher } from "./publisher.ts";
import { Room } from "./room.ts";
import { isOfUnknownType } from "./sent-event.ts";

/** The maximum number of events per stream, which bounds the size of its response. */
const MAX_STREAM_EVENTS = 10_000;
/** The maximum number of events in a batch. */
const MAX_BATCH_EVENTS = 1_000;
/** The maximum number of events whose payload one call erases. */
const MAX_ERASED_PER_CALL = 1_000;
/** The maximum size of events in streams and batches that wait to be written, in bytes per process. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024;

/**
 * Shares a check among all that ask for it in the same turn of the event loop. It starts afterwards, so each sees the
 * state after it has asked. Those who ask later are answered later: a quota takes the first events of a batch.
 */
function oncePerTurn<T>(check: () => Promise<T>): () => Promise<T> {
  let planned: Promise<T> | undefined;
  let last: Promise<unknown> = Promise.resolve();
  return () => {
    planned ??= new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      planned = undefined;
      const checked = check();
      const inOrder = Promise.allSettled([last, checked]).then(() => checked);
      last = inOrder;
      return inOrder;
    });
    return planned;
  };
}

/** What the service of events uses. */
export interface EventServiceParts {
  db: Db;
  log: Logger;
  instruments: Pick<ApiInstruments, "published" | "refusals">;
  tracer?: Tracer | undefined;
  /** Called after each write that queued deliveries. Returns at once. */
  onQueued?: () => void;
  /** Awaited before events are published: throws DomainError if this process may publish none. Defaults to nothing. */
  admit?: () => Promise<void> | undefined;
  /** Whether searchable values of payloads are stored for searches. */
  searchIndex: boolean;
}

/** Publishes events, for internal callers (contract, section 6). */
export function eventService(context: EventServiceParts, gate: Gate): ServiceImpl<typeof EventService> {
  const publish = createPublisher(
    context.db,
    context.instruments.published,
    context.onQueued,
    context.tracer,
  );
  const takeQuota = createEventQuota(context.db);
  const room = new Room(MAX_WAITING_BYTES);
  function seriesOptions(handler: HandlerContext): SeriesOptions {
    const caller = callerOf(handler);
    const authorised = oncePerTurn(() => gate.stillAuthorised(handler));
    return {
      publish,
      room,
      log: context.log,
      refusals: context.instruments.refusals,
      method: handler.method.name,
      isJson: speaksJson(handler.requestHeader, handler.url),
      caller,
      searchIndex: context.searchIndex,
      traceparent: traceparentOfCall(handler),
      signal: handler.signal,
      // The quota may have changed since the call started.
      admit: async () => {
        await context.admit?.();
        await takeQuota(await authorised());
      },
    };
  }

  return {
    async publishEvent(request, handler) {
      const caller = callerOf(handler);
      if (isOfUnknownType(request)) await refreshEventTypes();
      const event = newEvent(caller, request, context.searchIndex, traceparentOfCall(handler));
      await context.admit?.();
      await takeQuota(caller);
      const published = await publish(event);
      if (published instanceof DomainError) throw published;
      return publishedMessage(published, caller);
    },

    async publishEvents(messages, handler) {
      const series = new PublishedSeries(seriesOptions(handler));
      for await (const { events } of messages) {
        if (series.size + events.length > MAX_STREAM_EVENTS) {
          throw new DomainError(
            "STREAM_TOO_LONG",
            `a stream takes at most ${MAX_STREAM_EVENTS} events: send the others over another one`,
          );
        }
        await series.addAll(events);
      }
      return { results: await series.results() };
    },

    async erasePayloads(request, handler) {
      const { customer } = callerOf(handler);
      if (customer === null) assertServiceWide(handler);
      else assertErases(callerScope(handler) as LimitedScope, request.userId);
      assertText("user_id", request.userId, MAX_USER_ID_CHARACTERS);
      const step = await auditedCall(context.db, handler, async (trx, record) => {
        const erased = await erasePayloads(trx, request.userId, MAX_ERASED_PER_CALL);
        // Notices about webhooks of the operator may have the customer's user.
        const shown = erased.erased - (customer === null ? 0 : erased.notices);
        if (shown > 0) {
          await record({
            action: "payloads_erased",
            target: { ...SERVICE_WIDE, customer },
            after: {
              user_id: request.userId,
              payloads_erased: shown,
              ...(customer === null ? { deliveries_cancelled: erased.cancelled } : {}),
            },
          });
        }
        return { ...erased, shown };
      });
      // Of the cancelled deliveries, some may be those of the operator's webhooks.
      const { erased, shown, cancelled } = step;
      return {
        erased: shown,
        cancelled: customer === null ? cancelled : 0,
        more: erased === MAX_ERASED_PER_CALL,
      };
    },

    async publishEventBatch({ events }, handler) {
      if (events.length === 0 || events.length > MAX_BATCH_EVENTS) {
        throw invalidFields([{ field: "events", description: `must be 1 to ${MAX_BATCH_EVENTS} events` }]);
      }
      const series = new PublishedSeries(seriesOptions(handler));
      await series.addAll(events);
      return { results: await series.results() };
    },
  };
}

/** @throws DomainError PERMISSION_DENIED unless a key of a customer may erase the events of the user: all of its customer's, of every type */
function assertErases({ customer, installedAppId, processes }: LimitedScope, userId: string): void {
  if (userId === customer && installedAppId === null && processes.length === 0) return;
  throw new DomainError(
    "NOT_ALLOWED",
    "user_id: a key of a customer erases payloads of this customer only, and only if it belongs to no installed app and may subscribe to every event type",
  );
}
