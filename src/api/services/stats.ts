import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { DispatchRunSchema, StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import {
  listRuns,
  type OverviewRow,
  type RunRow,
  readHistory,
  readOverview,
  webhookStats,
} from "../../db/stats.ts";
import { DomainError } from "../../domain-error.ts";
import { stillAuthorised } from "../auth.ts";
import type { ApiContext } from "../context.ts";
import { invalidFields, stoppingError } from "../errors.ts";
import { sharedReading } from "../shared-reading.ts";
import { pageSize } from "./delivery-filter.ts";

/** How often an overview is read while somebody watches, in milliseconds. */
const WATCH_INTERVAL_MS = 1_000;
/** How long counts by webhook are taken for current, in milliseconds. */
const WEBHOOKS_FRESH_MS = 15_000;
const MAX_BUCKETS = 288;
const DEFAULT_BUCKETS = 24;
const MAX_RUNS = 100;
const DEFAULT_RUNS = 20;

/**
 * Tells how the service does, and starts a dispatch.
 *
 * @param stopping ends WatchOverview
 */
export function statsService(context: ApiContext, stopping: AbortSignal): ServiceImpl<typeof StatsService> {
  const { db, dispatchNow, workflowUrl } = context;
  const overview = sharedReading(() => readOverview(db), WATCH_INTERVAL_MS);
  const webhooks = sharedReading(() => webhookStats(db), WEBHOOKS_FRESH_MS);

  function runMessage(run: RunRow): MessageInitShape<typeof DispatchRunSchema> {
    const url = workflowUrl?.(run.workflowId, run.runId);
    return {
      workflowId: run.workflowId,
      runId: run.runId,
      started: timestampFromDate(run.started),
      ...(run.closed ? { closed: timestampFromDate(run.closed) } : {}),
      attempts: run.sent,
      delivered: run.delivered,
      failed: run.failed,
      ...(url === undefined ? {} : { url }),
    };
  }

  return {
    async getOverview() {
      return { overview: await overview() };
    },

    async *watchOverview(_request, handler) {
      const end = AbortSignal.any([handler.signal, stopping]);
      let told: OverviewRow | undefined;
      while (!handler.signal.aborted) {
        if (stopping.aborted) throw stoppingError();
        const now = await overview();
        if (!told || differ(told, now)) yield { overview: now };
        told = now;
        await delay(WATCH_INTERVAL_MS, undefined, { signal: end }).catch(() => {});
        if (!end.aborted) await stillAuthorised(context, handler);
      }
    },

    async getHistory({ buckets }) {
      if (buckets < 0 || buckets > MAX_BUCKETS) {
        throw invalidFields([{ field: "buckets", description: `must be from 1 to ${MAX_BUCKETS}` }]);
      }
      const found = await readHistory(db, buckets || DEFAULT_BUCKETS, new Date());
      return { buckets: found.map((bucket) => ({ ...bucket, start: timestampFromDate(bucket.start) })) };
    },

    async listWebhookStats() {
      const { since, webhooks: counted } = await webhooks();
      return { since: timestampFromDate(since), webhooks: counted };
    },

    async listDispatchRuns(request) {
      const limit = pageSize(request.pageSize, { most: MAX_RUNS, usual: DEFAULT_RUNS });
      return { runs: (await listRuns(db, limit)).map(runMessage) };
    },

    async dispatchNow() {
      if (!dispatchNow) {
        throw new DomainError(
          "FAILED_PRECONDITION",
          "this process does not know where Temporal is; set TEMPORAL_ADDRESS for it, as for the workers",
          { reason: "STATE_NOT_FIT" },
        );
      }
      await dispatchNow();
      return {};
    },
  };
}

function differ(a: OverviewRow, b: OverviewRow): boolean {
  return (Object.keys(a) as (keyof OverviewRow)[]).some((name) => a[name] !== b[name]);
}
