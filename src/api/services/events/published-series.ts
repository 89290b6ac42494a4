import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import type { Counter } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { PublishEventRequest, PublishResultSchema } from "../../../../gen/webhook/v1/event_pb.ts";
import { DomainError } from "../../../contract/errors.ts";
import type { NewEvent } from "../../../db/events/publish.ts";
import { reasonOf, toConnectError } from "../../errors/errors.ts";
import { publishedMessage } from "../messages.ts";
import { newEvent } from "./new-event.ts";
import type { Publisher } from "./publisher.ts";
import type { Room } from "./room.ts";

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
  apiKeyId: string;
  /** Whether searchable values of payloads are stored for searches. */
  searchIndex: boolean;
  /** The trace that the events belong to. */
  traceparent: string | null;
  /** Rejects when the caller's key may no longer publish, or its quota has no room for an event. */
  admit: () => Promise<void>;
}

/** The memory of an event in addition to its payload, in bytes. */
const EVENT_BYTES = 2_048;
/** The maximum length of an error message in a result, in characters. */
const MAX_MESSAGE_CHARACTERS = 300;
/** Codes that concern the caller or the service instead of one event, and therefore end the whole call. */
const FATAL = new Set([Code.Unavailable, Code.Unauthenticated, Code.PermissionDenied]);

/** Publishes many events of one caller, each with its own result, in order. */
export class PublishedSeries {
  readonly #options: SeriesOptions;
  readonly #results: Result[] = [];
  readonly #underWay = new Set<Promise<void>>();
  /** The last pending event per idempotency key. The next event with that key waits for it, so that order is kept. */
  readonly #lastOfKey = new Map<string, Promise<void>>();
  #fault: { error: unknown } | undefined;

  constructor(options: SeriesOptions) {
    this.#options = options;
  }

  /** The number of events added, including rejected ones. */
  get size(): number {
    return this.#results.length;
  }

  /**
   * Adds an event. Resolves when the next one may be added, which is before this one is stored.
   *
   * @throws the error that ended the whole series: the key was revoked, or the database is unavailable
   */
  async add(request: PublishEventRequest): Promise<void> {
    const index = this.#results.push({}) - 1;
    let event: NewEvent;
    try {
      const { apiKeyId, searchIndex, traceparent } = this.#options;
      event = newEvent(apiKeyId, request, searchIndex, traceparent);
    } catch (error) {
      this.#refuse(index, error);
      return;
    }
    const bytes = EVENT_BYTES + event.payload.length;
    const entered = this.#options.room.enter(bytes);
    if (entered) await entered;
    const { idempotencyKey } = event;
    const stored = this.#store(index, event, this.#lastOfKey.get(idempotencyKey)).finally(() => {
      this.#options.room.leave(bytes);
      this.#underWay.delete(stored);
      if (this.#lastOfKey.get(idempotencyKey) === stored) this.#lastOfKey.delete(idempotencyKey);
    });
    this.#underWay.add(stored);
    this.#lastOfKey.set(idempotencyKey, stored);
    this.#assertSound();
  }

  /** The results of all events, when each is stored or rejected. Throws as `add` does. */
  async results(): Promise<Result[]> {
    await Promise.all(this.#underWay);
    this.#assertSound();
    return this.#results;
  }

  /** Never rejects. */
  async #store(index: number, event: NewEvent, earlier: Promise<void> | undefined): Promise<void> {
    try {
      if (earlier) await earlier;
      await this.#options.admit();
      const published = await this.#options.publish(event);
      if (published instanceof DomainError) throw published;
      this.#results[index] = { result: { case: "published", value: publishedMessage(published) } };
    } catch (error) {
      this.#refuse(index, error);
    }
  }

  #refuse(index: number, error: unknown): void {
    if (this.#fault) return;
    const told = toConnectError(error, this.#options.log, this.#options.method);
    const { code, rawMessage } = told;
    // The call counts as refused then.
    if (FATAL.has(code)) this.#fault = { error };
    else this.#options.refusals.add(1, { reason: reasonOf(told) });
    const message = clipped(rawMessage);
    this.#results[index] = {
      result: { case: "error", value: { index, code, message, reason: reasonOf(told) } },
    };
  }

  #assertSound(): void {
    if (this.#fault) throw this.#fault.error;
  }
}

function clipped(text: string): string {
  return text.length <= MAX_MESSAGE_CHARACTERS ? text : `${text.slice(0, MAX_MESSAGE_CHARACTERS - 1)}…`;
}
