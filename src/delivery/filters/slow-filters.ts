import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import { type Db, untilAnswered } from "../../lib/pg/index.ts";
import type { DeliveryInstruments } from "../../metrics/index.ts";
import { noticeFilterStopped } from "../../notices/index.ts";
import type { ClaimedWebhook } from "../../webhooks/index.ts";
import { noteSlowFilter, stopFilter } from "../../webhooks/index.ts";
import type { FiltersParts } from "./filters.ts";

/** The minimum interval between two logs of slow evaluations of one webhook, in milliseconds. Also limits how often they are stored. */
const NOTE_INTERVAL_MS = 60_000;
const MAX_NOTED = 10_000;

/** Creates the callbacks that count, log and store slow evaluations of filters, and switch filters off. */
export function createSlowFilters(options: {
  db: Db;
  log: Logger;
  instruments: Pick<DeliveryInstruments, "slowFilters">;
  stopping: AbortSignal;
}): Pick<FiltersParts, "onSlow" | "onStopped"> {
  const { db, log, instruments, stopping: signal } = options;
  const noted = new LRUCache<bigint, true>({ max: MAX_NOTED, ttl: NOTE_INTERVAL_MS });

  /** Never rejects. */
  async function store(webhookId: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await untilAnswered(work, { signal });
    } catch (err) {
      if (!signal.aborted) log.error({ err, webhookId }, "storing that a filter is slow failed");
    }
  }

  return {
    onSlow({ id, filter }: ClaimedWebhook) {
      instruments.slowFilters.add(1);
      if (noted.has(id)) return;
      noted.set(id, true);
      const webhookId = String(id);
      log.warn(
        { webhookId },
        "the filter of a webhook takes longer than FILTER_TIMEOUT; its events are sent",
      );
      void store(webhookId, () => noteSlowFilter(db, id, filter ?? ""));
    },
    onStopped({ id, filter }: ClaimedWebhook) {
      const webhookId = String(id);
      void store(webhookId, async () => {
        if (await stopFilter(db, id, filter ?? "", noticeFilterStopped))
          log.warn({ webhookId }, "a slow filter was switched off; all events of the webhook are sent");
      });
    },
  };
}
