import type { Logger } from "pino";
import { compileFilter, type Filter, type FilterEvent, filterEvent } from "../../contract/filters/filter.ts";
import { FilterError } from "../../contract/filters/filter-error.ts";
import { Patterns } from "../../contract/filters/patterns.ts";
import type { ClaimedDelivery } from "../../db/queue/claims.ts";
import type { EventContent } from "../../db/queue/event-contents.ts";
import type { ClaimedWebhook } from "../../db/queue/webhooks.ts";
import type { Clock } from "../../process/clock.ts";

/** The time after which evaluation pauses for other work of the process, in milliseconds. */
const SLICE_MS = 5;

const NONE: ReadonlySet<ClaimedDelivery> = new Set();

/**
 * Evaluates the filters of webhooks. Compiled filters and read events are kept as long as the webhook and the content that
 * they belong to.
 */
export class Filters {
  readonly #clock: Pick<Clock, "now" | "soon">;
  readonly #log: Logger;
  readonly #patterns = new Patterns();
  readonly #filters = new WeakMap<ClaimedWebhook, Filter>();
  readonly #events = new WeakMap<EventContent, FilterEvent>();

  constructor(clock: Pick<Clock, "now" | "soon">, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * The deliveries that the filters of their webhooks do not match. Deliveries of test events are never among them, nor are
   * those for which a filter cannot be evaluated.
   */
  async unmatched(
    deliveries: readonly ClaimedDelivery[],
    contentOf: (delivery: ClaimedDelivery) => EventContent,
  ): Promise<ReadonlySet<ClaimedDelivery>> {
    // Webhooks without a filter pay nothing.
    if (!deliveries.some(({ webhook }) => webhook.filter)) return NONE;
    const unmatched = new Set<ClaimedDelivery>();
    let sliceEnd = this.#clock.now() + SLICE_MS;
    for (const delivery of deliveries) {
      if (!this.#matches(delivery, contentOf(delivery))) unmatched.add(delivery);
      if (this.#clock.now() < sliceEnd) continue;
      await new Promise<void>((resolve) => this.#clock.soon(resolve));
      sliceEnd = this.#clock.now() + SLICE_MS;
    }
    return unmatched;
  }

  #matches({ id, webhook }: ClaimedDelivery, content: EventContent): boolean {
    if (!webhook.filter || content.test || content.payload === null) return true;
    try {
      const { process, filter: expression } = webhook;
      const { payload, userId } = content;
      const filter = this.#filters.getOrInsertComputed(webhook, () => this.#compile(webhook, expression));
      return filter.matches(
        this.#events.getOrInsertComputed(content, () => filterEvent(process, payload, userId)),
      );
    } catch (err) {
      if (!(err instanceof FilterError))
        this.#log.error({ err, deliveryId: id }, "evaluating a filter failed; the event is sent");
      return true;
    }
  }

  #compile({ id, process }: ClaimedWebhook, expression: string): Filter {
    try {
      return compileFilter(process, expression, this.#patterns);
    } catch (err) {
      // For example, a later version has stored it.
      const webhookId = String(id);
      this.#log.error({ err, webhookId }, "the filter of a webhook is not valid; its events are sent");
      return { matches: () => true };
    }
  }
}
