import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type {
  TriedEventSchema,
  TryWebhookFilterResponseSchema,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import {
  compileFilter,
  type Filter,
  filterEvent,
  MAX_FILTER_CHARACTERS,
} from "../../../contract/filters/filter.ts";
import { FilterError } from "../../../contract/filters/filter-error.ts";
import { type LatestEvent, latestEvents } from "../../../db/events/latest.ts";
import { timeOfId } from "../../../db/partitions.ts";
import { getWebhook } from "../../../db/webhooks/webhooks.ts";
import { callerOf } from "../../auth/auth.ts";
import { callerScope } from "../../auth/caller-scope.ts";
import type { ApiContext } from "../../context.ts";
import { invalidFields } from "../../errors/errors.ts";
import { subjectOf } from "../deliveries/subjects.ts";
import { assertText, noWebhook } from "../messages.ts";
import { TrialQueue } from "./trial-queue.ts";

/** The maximum number of events for which a filter is tried. */
const MAX_TRIED = 1_000;
/** The maximum number of these that a response contains. */
const MAX_SHOWN = 20;
/** The maximum number of trials at once per process, each with the payloads of its events. Others wait. */
const MAX_AT_ONCE = 2;
/** The time after which a trial ends, in milliseconds. */
const MAX_TRIAL_MS = 1_000;
/** The time after which a trial pauses for other calls, in milliseconds. */
const SLICE_MS = 5;

/** Null for an empty filter. @throws DomainError INVALID_ARGUMENT if it is not valid for the event type */
export function checkedFilter(process: number, filter: string): string | null {
  if (filter.trim() === "") return null;
  compiled(process, filter);
  return filter;
}

function compiled(process: number, filter: string): Filter {
  assertText("filter", filter, MAX_FILTER_CHARACTERS);
  try {
    return compileFilter(process, filter);
  } catch (error) {
    if (error instanceof FilterError) throw invalidFields([{ field: "filter", description: error.message }]);
    throw error;
  }
}

/** The method that tries filters. */
export function filterMethods({
  db,
}: ApiContext): Pick<ServiceImpl<typeof WebhookService>, "tryWebhookFilter"> {
  const queue = new TrialQueue("filter trials", MAX_AT_ONCE);
  return {
    async tryWebhookFilter({ webhookId, filter: expression }, handler) {
      const scope = callerScope(handler);
      const webhook = await getWebhook(db, scope, webhookId);
      if (!webhook) throw noWebhook(webhookId);
      const { process } = webhook;
      const filter = compiled(process, expression);
      // Apps learn of no event that their webhook did not get.
      const deliveredTo = scope === "everything" ? null : webhookId;
      return queue.run(callerOf(handler).id, handler.signal, async () =>
        trial(process, filter, await latestEvents(db, process, deliveredTo, MAX_TRIED), handler.signal),
      );
    },
  };
}

async function trial(
  process: number,
  filter: Filter,
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
  let sliceEnd = performance.now() + SLICE_MS;
  for (const event of events) {
    signal.throwIfAborted();
    const { sent, error } = tried(filter, process, event);
    result.examined += 1;
    if (error !== undefined) result.failed += 1;
    else if (sent) result.matched += 1;
    if (result.events.length < MAX_SHOWN) result.events.push(triedMessage(process, event, sent, error));
    if (performance.now() > end) break;
    if (performance.now() < sliceEnd) continue;
    await new Promise(setImmediate);
    sliceEnd = performance.now() + SLICE_MS;
  }
  return result;
}

/** The result of a filter for an event, which is sent if the filter cannot be evaluated. */
function tried(
  filter: Filter,
  process: number,
  { payload, userId }: LatestEvent,
): { sent: boolean; error?: string } {
  try {
    return { sent: filter.matches(filterEvent(process, payload, userId)) };
  } catch (error) {
    return {
      sent: true,
      error:
        error instanceof FilterError ? error.message : "the payload is not one of this version's event type",
    };
  }
}

function triedMessage(
  process: number,
  { id, userId, payload }: LatestEvent,
  sent: boolean,
  error: string | undefined,
): MessageInitShape<typeof TriedEventSchema> {
  const subject = subjectOf(process, payload);
  return {
    eventId: id,
    published: timestampFromDate(timeOfId(id)),
    userId,
    ...(subject === undefined ? {} : { subject }),
    sent,
    ...(error === undefined ? {} : { error }),
  };
}
