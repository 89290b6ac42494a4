import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Counter } from "@opentelemetry/api";
import type { Logger } from "pino";
import { RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import {
  type PublishEventRequest,
  PublishEventRequestSchema,
  type PublishResultSchema,
} from "../../../gen/webhook/v1/event_pb.ts";
import { inJsonNames, reasonOf, toConnectError } from "../../calls/errors/index.ts";
import { type ApiKeyRow, slices } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { refreshEventTypes } from "../../event-types/index.ts";
import type { NewEvent } from "../publish.ts";
import { newEvent } from "./new-event.ts";
import { publishedMessage } from "./published-message.ts";
import type { Publisher } from "./publisher.ts";
import type { Room } from "./room.ts";
import { isOfUnknownType } from "./sent-event.ts";

type Result = MessageInitShape<typeof PublishResultSchema>;

/** Dependencies of a series. */
export interface SeriesOptions {
  publish: Publisher;
  /** The room for waiting events, in bytes. Shared by all series of the process. */
  room: Room;
  log: Logger;
  /** Counts refused events. */
  refusals: Counter;
  /** The call, for the log. */
  method: string;
  /** Whether the caller speaks JSON, so that errors have names of fields as in JSON. */
  isJson: boolean;
  /** The key of the call. */
  caller: Pick<ApiKeyRow, "id" | "customer">;
  /** Whether searchable values of payloads are stored for searches. */
  searchIndex: boolean;
  /** The trace that the events belong to. */
  traceparent: string | null;
  /** Aborted when the call ends. Further events are not published then. */
  signal: AbortSignal;
  /** Rejects when the caller's key may no longer publish, or its quota has no room for an event. */
  admit: () => Promise<void>;
}

/** An event of a series that is not stored yet. */
interface Pending {
  /** Its place in the series. */
  index: number;
  /** Resolves when it is stored or rejected. */
  stored: Promise<void>;
}

/** The memory of an event in addition to its payload, in bytes. */
const EVENT_BYTES = 2_048;
/** The maximum length of an error message in a result, in characters. */
const MAX_MESSAGE_CHARACTERS = 300;
/** Codes that concern the caller or the service instead of one event, and therefore end the whole call. */
const FATAL = new Set([Code.Unavailable, Code.Unauthenticated, Code.PermissionDenied]);

/** The error of a series whose call has ended. Shared, because each error would capture its stack. */
const CANCELLED = new ConnectError("the client cancelled the call", Code.Canceled);

/** Publishes many events of one caller, each with its own result, in order. */
export class PublishedSeries {
  readonly #options: SeriesOptions;
  readonly #results: Result[] = [];
  /** The last pending event per idempotency key. The next event with that key waits for it, so that order is kept. */
  readonly #lastOfKey = new Map<string, Pending>();
  /** The number of events that are neither stored nor rejected. */
  #open = 0;
  /** Called when no event is open. */
  #onSettled = () => {};
  #fault: { error: unknown } | undefined;

  constructor(options: SeriesOptions) {
    this.#options = options;
  }

  /** The number of events added, including rejected ones. */
  get size(): number {
    return this.#results.length;
  }

  /**
   * Adds events. Resolves when the next ones may be added, which is before these are stored.
   *
   * @throws the error that ended the whole series: the key was revoked, the database is unavailable, or the client left
   */
  async addAll(requests: readonly PublishEventRequest[]): Promise<void> {
    const slice = slices(this.#options.caller.id);
    if (requests.some(isOfUnknownType)) await refreshEventTypes();
    for (const request of requests) {
      // The message of a call that has ended no longer counts as memory in use: its client could make as many such calls as it likes.
      this.#assertCalled();
      const full = this.#add(request) ?? slice();
      if (full) await full;
    }
  }

  /** The results of all events, when each is stored or rejected. Throws as `addAll` does. */
  async results(): Promise<Result[]> {
    if (this.#open > 0) {
      await new Promise<void>((resolve) => {
        this.#onSettled = resolve;
      });
    }
    this.#assertSound();
    return this.#results;
  }

  /** Returns a promise if the next event must wait for room. */
  #add(request: PublishEventRequest): Promise<void> | undefined {
    const index = this.#results.push({}) - 1;
    let event: NewEvent;
    try {
      const { caller, searchIndex, traceparent } = this.#options;
      event = newEvent(caller, request, searchIndex, traceparent);
    } catch (error) {
      // Even without the permission for this event, the caller may publish others.
      this.#refuse(index, error, false);
      return undefined;
    }
    const bytes = EVENT_BYTES + event.payload.length;
    const entered = this.#options.room.enter(bytes);
    if (entered) return entered.then(() => this.#start(index, event, bytes));
    this.#start(index, event, bytes);
    return undefined;
  }

  #start(index: number, event: NewEvent, bytes: number): void {
    const { idempotencyKey } = event;
    this.#open += 1;
    const stored = this.#store(index, event, bytes, this.#lastOfKey.get(idempotencyKey)?.stored);
    this.#lastOfKey.set(idempotencyKey, { index, stored });
    this.#assertSound();
  }

  /** Never rejects. */
  async #store(
    index: number,
    event: NewEvent,
    bytes: number,
    earlier: Promise<void> | undefined,
  ): Promise<void> {
    try {
      if (earlier) await earlier;
      this.#assertCalled();
      await this.#options.admit();
      const published = await this.#options.publish(event);
      if (published instanceof DomainError) throw published;
      this.#results[index] = {
        result: { case: "published", value: publishedMessage(published, this.#options.caller) },
      };
    } catch (error) {
      // Nobody reads the results of a call that has ended.
      if (!this.#options.signal.aborted) this.#refuse(index, error);
    }
    this.#options.room.leave(bytes);
    if (this.#lastOfKey.get(event.idempotencyKey)?.index === index)
      this.#lastOfKey.delete(event.idempotencyKey);
    this.#open -= 1;
    if (this.#open === 0) this.#onSettled();
  }

  #refuse(index: number, error: unknown, mayBeFatal = true): void {
    if (this.#fault) return;
    const told = toConnectError(error, this.#options.log, this.#options.method);
    const { code } = told;
    const { rawMessage } = this.#options.isJson ? inJsonNames(told, PublishEventRequestSchema) : told;
    // The call counts as refused then.
    if (mayBeFatal && FATAL.has(code)) this.#fault = { error };
    else this.#options.refusals.add(1, { reason: reasonOf(told) });
    const message = clipped(rawMessage);
    const retryAfter = told.findDetails(RetryInfoSchema)[0]?.retryDelay;
    this.#results[index] = {
      result: {
        case: "error",
        value: { index, code, message, reason: reasonOf(told), ...(retryAfter ? { retryAfter } : {}) },
      },
    };
  }

  #assertCalled(): void {
    if (this.#options.signal.aborted) throw CANCELLED;
  }

  #assertSound(): void {
    if (this.#fault) throw this.#fault.error;
  }
}

function clipped(text: string): string {
  return text.length <= MAX_MESSAGE_CHARACTERS ? text : `${text.slice(0, MAX_MESSAGE_CHARACTERS - 1)}…`;
}
