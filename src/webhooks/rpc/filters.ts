import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type {
  TriedEventSchema,
  TryWebhookFilterResponseSchema,
  WebhookService,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { assertText, callerOf, callerScope, FairQueue } from "../../calls/index.ts";
import { MAX_FILTER_CHARACTERS } from "../../contract/filters/filter.ts";
import { present } from "../../contract/present.ts";
import { subjectOf } from "../../contract/subject.ts";
import { type FilterResult, type FilterRunner, type FilterText, runFilter } from "../../filters/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import { timeOfId } from "../../schema/index.ts";
import { requiredWebhook } from "../webhooks.ts";

/** The maximum number of events for which a filter is tried. */
const MAX_TRIED = 1_000;
/** The maximum number of these that a response contains. */
const MAX_SHOWN = 20;
/** The maximum number of trials at once per process, each with the payloads of its events. Others wait. */
const MAX_AT_ONCE = 2;
const MAX_AT_ONCE_PER_KEY = 1;
/** The number of events that are evaluated together. */
const AT_ONCE = 20;
/** The time after which a trial ends, in milliseconds. */
const MAX_TRIAL_MS = 1_000;

/** An event with its payload. */
export interface LatestEvent {
  id: string;
  userId: string;
  payload: string;
}

/** What tries filters on past events. */
export interface FilterParts {
  db: Db;
  /** Evaluates filters. */
  filters: FilterRunner;
  /**
   * The latest events of a type with a payload, newest first.
   *
   * @param only `deliveredTo`: those that this webhook has a delivery of; `userId`: those of this user. Null for all
   */
  latestEvents(
    db: Db,
    process: number,
    only: { deliveredTo: bigint | null; userId: string | null },
    limit: number,
  ): Promise<LatestEvent[]>;
}

/**
 * Null for an empty filter.
 *
 * @param keyId the caller's key, which shares the time for filters with other keys
 * @throws DomainError INVALID_ARGUMENT if it is not valid for the event type
 */
export async function checkedFilter(
  filters: FilterRunner,
  keyId: string,
  process: number,
  expression: string,
): Promise<string | null> {
  if (expression.trim() === "") return null;
  await assertValid(filters, keyId, { process, expression });
  return expression;
}

async function assertValid(filters: FilterRunner, keyId: string, filter: FilterText): Promise<void> {
  assertText("filter", filter.expression, MAX_FILTER_CHARACTERS);
  const { error } = await runFilter(filters, { owner: keyId, webhook: keyId, filter });
  if (error !== undefined) throw invalidField("filter", error);
}

/** The method that tries filters. */
export function filterMethods({
  db,
  filters,
  latestEvents,
}: FilterParts): Pick<ServiceImpl<typeof WebhookService>, "tryWebhookFilter"> {
  const queue = new FairQueue("filter trials", { atOnce: MAX_AT_ONCE, perKey: MAX_AT_ONCE_PER_KEY });
  return {
    async tryWebhookFilter({ webhookId, filter: expression }, handler) {
      const scope = callerScope(handler);
      const webhook = await requiredWebhook(db, scope, webhookId);
      const { process, customer: userId } = webhook;
      const keyId = callerOf(handler).id;
      const filter = { process, expression };
      await assertValid(filters, keyId, filter);
      // Apps and customers learn of no event that their webhook did not get; customers, not even of its existence.
      const deliveredTo = scope === "everything" ? null : webhookId;
      return queue.run(keyId, handler.signal, async () => {
        const events = await latestEvents(db, process, { deliveredTo, userId }, MAX_TRIED);
        return trial(filters, keyId, filter, events, handler.signal);
      });
    },
  };
}

async function trial(
  filters: FilterRunner,
  keyId: string,
  filter: FilterText,
  events: readonly LatestEvent[],
  signal: AbortSignal,
): Promise<MessageInitShape<typeof TryWebhookFilterResponseSchema>> {
  const result = {
    examined: 0,
    matched: 0,
    failed: 0,
    events: [] as MessageInitShape<typeof TriedEventSchema>[],
  };
  const end = performance.now() + MAX_TRIAL_MS;
  let isSlow = false;
  for (let from = 0; from < events.length && !isSlow && performance.now() < end; from += AT_ONCE) {
    const some = events.slice(from, from + AT_ONCE);
    for (const [event, { sent, problem, error }] of await evaluateAll(filters, keyId, filter, some, signal)) {
      result.examined += 1;
      if (problem) result.failed += 1;
      else if (sent) result.matched += 1;
      isSlow ||= problem === "slow";
      if (result.events.length < MAX_SHOWN)
        result.events.push(triedMessage(filter.process, event, sent, error));
    }
  }
  return result;
}

/** The results for some events, without those after a slow one. Rejects when the call ends. */
function evaluateAll(
  filters: FilterRunner,
  keyId: string,
  filter: FilterText,
  events: readonly LatestEvent[],
  signal: AbortSignal,
): Promise<Map<LatestEvent, FilterResult>> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const results = new Map<LatestEvent, FilterResult>();
    let isEnded = false;
    const end = () => {
      isEnded = true;
      signal.removeEventListener("abort", abort);
      resolve(results);
    };
    const abort = () => {
      isEnded = true;
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    const job = { owner: keyId, webhook: keyId, filter, isWanted: () => !isEnded };
    for (const event of events)
      filters.run({
        ...job,
        event,
        done(result) {
          results.set(event, result);
          if (results.size === events.length || result.problem === "slow") end();
        },
      });
  });
}

function triedMessage(
  process: number,
  { id, userId, payload }: LatestEvent,
  sent: boolean,
  error: string | undefined,
): MessageInitShape<typeof TriedEventSchema> {
  const published = timestampFromDate(timeOfId(id));
  return present({ eventId: id, published, userId, subject: subjectOf(process, payload), sent, error });
}
