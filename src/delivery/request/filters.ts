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
      const filter = this.#filterOf(webhook, webhook.filter);
      return filter.matches(this.#eventOf(webhook.process, content, content.payload));
    } catch (err) {
      if (!(err instanceof FilterError))
        this.#log.error({ err, deliveryId: id }, "evaluating a filter failed; the event is sent");
      return true;
    }
  }

  #filterOf(webhook: ClaimedWebhook, expression: string): Filter {
    let filter = this.#filters.get(webhook);
    if (filter) return filter;
    try {
      filter = compileFilter(webhook.process, expression, this.#patterns);
    } catch (err) {
      filter = { matches: () => true };
      // For example, a later version has stored it.
      this.#log.error(
        { err, webhookId: String(webhook.id) },
        "the filter of a webhook is not valid; its events are sent",
      );
    }
    this.#filters.set(webhook, filter);
    return filter;
  }

  #eventOf(process: number, content: EventContent, payload: string): FilterEvent {
    let event = this.#events.get(content);
    if (!event) {
      event = filterEvent(process, payload, content.userId);
      this.#events.set(content, event);
    }
    return event;
  }
}
