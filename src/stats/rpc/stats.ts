import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type {
  DispatchRunSchema,
  OverviewSchema,
  StatsService,
  WebhookHistorySchema,
  WebhookIntervalSchema,
} from "../../../gen/webhook/v1/stats_pb.ts";
import { auditedCall, SERVICE_WIDE } from "../../audit/index.ts";
import { invalidField, stateNotFit, stoppingError } from "../../calls/errors/index.ts";
import {
  assertServiceWide,
  BY_ID,
  callerScope,
  noWebhook,
  pageSize,
  readPage,
  type Scope,
  scopeName,
} from "../../calls/index.ts";
import { present, timestampOf } from "../../contract/present.ts";
import { BOTTLENECKS, CAUSES } from "../../contract/stats/bottlenecks.ts";
import type { Gate } from "../../keys/gate/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import type { WorkflowUrl } from "../../temporal/index.ts";
import { listWebhookIds } from "../../webhooks/index.ts";
import { LATENCY_BOUNDS_MS, percentileMs } from "../rollups.ts";
import {
  HISTORY_INTERVALS,
  listRuns,
  type OverviewRow,
  type RunRow,
  readHistory,
  readOverview,
  readWebhookHistory,
  readWebhookPeriods,
  type WebhookIntervalRow,
  webhookStats,
} from "../stats.ts";
import { sharedReadings } from "./shared-reading.ts";

/** The interval between reads of the overview while it is watched, in milliseconds. */
const WATCH_INTERVAL_MS = 1_000;
/**
 * The maximum time between messages of WatchOverview, in milliseconds; an unchanged overview is sent again. Proxies close
 * silent streams, many after one minute.
 */
const MAX_SILENCE_MS = 20_000;
/** The maximum number of webhooks in a history. */
const MAX_HISTORIES = 100;
/** The maximum number of webhooks that a request for statistics names. */
const MAX_WEBHOOKS = 1_000;
/** The maximum number of intervals in a history, by its hours: none is shorter than what is counted. */
const MAX_BUCKETS = { 1: 60, 24: 288, 168: 168 };
/** The same of a period with a start and an end, and the length of the shortest interval in milliseconds. */
const MAX_OTHER_BUCKETS = 288;
const MINUTE_MS = 60_000;
/** The default number of intervals in a history. */
const DEFAULT_BUCKETS = 24;
/** The maximum number of runs returned, and the number if a request names none. */
const RUN_SIZES = { most: 100, usual: 20 };

/** What the statistics service uses. */
export interface StatsParts {
  db: Db;
  /** A monotonic clock in milliseconds, by which cached statistics get old. Defaults to `performance.now`. */
  now?: () => number;
  /**
   * Starts a dispatch of pending deliveries. Undefined if the process has no Temporal.
   *
   * @throws DomainError FAILED_PRECONDITION while the schedule is paused; UNAVAILABLE if Temporal does not respond
   */
  dispatchNow?: () => Promise<void>;
  workflowUrl?: WorkflowUrl | undefined;
  /** The maximum time between messages of WatchOverview, in milliseconds. Defaults to 20,000. */
  overviewSilenceMs?: number;
}

/**
 * The statistics service, which also starts dispatches.
 *
 * @param stopping ends WatchOverview
 */
export function statsService(
  { db, dispatchNow, workflowUrl, now, overviewSilenceMs = MAX_SILENCE_MS }: StatsParts,
  gate: Gate,
  stopping: AbortSignal,
): ServiceImpl<typeof StatsService> {
  // Shared only by callers with the same scope.
  const overview = sharedReadings(
    async (scope: Scope) => overviewMessage(await readOverview(db, scope)),
    scopeName,
    WATCH_INTERVAL_MS,
    now,
  );
  const history = sharedReadings(
    ({ scope, buckets, hours }: { scope: Scope; buckets: number; hours: number }) =>
      readHistory(db, scope, buckets, periodOf(hours, buckets)),
    ({ scope, buckets, hours }) => `${scopeName(scope)} ${buckets} ${hours}`,
    0,
    now,
  );

  function runMessage(run: RunRow): MessageInitShape<typeof DispatchRunSchema> {
    const url = workflowUrl?.(run.workflowId, run.runId);
    const [started, closed] = [timestampFromDate(run.started), timestampOf(run.closed)];
    return present({ ...run, started, closed, url });
  }

  return {
    async getOverview({ customer }, handler) {
      return { overview: await overview(callerScope(handler, customer)) };
    },

    async *watchOverview({ customer }, handler) {
      const scope = callerScope(handler, customer);
      const end = AbortSignal.any([handler.signal, stopping]);
      let told: OverviewMessage | undefined;
      let toldAt = 0;
      while (!handler.signal.aborted) {
        if (stopping.aborted) throw stoppingError();
        const now = await overview(scope);
        // The next read would be too late.
        const isDue = performance.now() + WATCH_INTERVAL_MS > toldAt + overviewSilenceMs;
        if (!told || isDue || !isDeepStrictEqual(told, now)) {
          told = now;
          toldAt = performance.now();
          yield { overview: now };
        }
        await delay(WATCH_INTERVAL_MS, undefined, { signal: end }).catch(() => {});
        if (!end.aborted) await gate.stillAuthorised(handler);
      }
    },

    async getHistory({ buckets, hours, from, to, customer }, handler) {
      const other = from || to ? otherPeriod(from, to, hours) : undefined;
      const most = other
        ? Math.min(MAX_OTHER_BUCKETS, Math.max(1, Math.floor((+other.end - +other.start) / MINUTE_MS)))
        : MAX_BUCKETS[assertPeriod(hours)];
      if (buckets < 0 || buckets > most) throw invalidField("buckets", `must be from 1 to ${most}`);
      const scope = callerScope(handler, customer);
      const found = other
        ? await readHistory(db, scope, buckets || 1, other)
        : await history({ scope, buckets: buckets || DEFAULT_BUCKETS, hours });
      return { buckets: found.map((bucket) => ({ ...bucket, start: timestampFromDate(bucket.start) })) };
    },

    async listWebhookStats(request, handler) {
      const { webhookIds } = request;
      assertMost(webhookIds, MAX_WEBHOOKS);
      const scope = callerScope(handler, request.customer);
      const wanted = webhookIds.length === 0 ? null : webhookIds;
      const page = await readPage(request, BY_ID, (each) => listWebhookIds(db, scope, wanted, each));
      const { since, webhooks } = await webhookStats(
        db,
        page.rows.map(({ id }) => id),
      );
      return { since: timestampFromDate(since), webhooks, nextPageToken: page.nextPageToken };
    },

    async getWebhookStats(request, handler) {
      const found = await readWebhookPeriods(db, callerScope(handler), request.webhookId);
      if (!found) throw noWebhook(request.webhookId);
      return { periods: found.map(({ latency, ...period }) => ({ ...period, ...percentiles(latency) })) };
    },

    async listWebhookHistory({ webhookIds, hours }, handler) {
      assertMost(webhookIds, MAX_HISTORIES);
      const period = assertPeriod(hours);
      const found = await readWebhookHistory(db, callerScope(handler), webhookIds, period);
      const seconds = HISTORY_INTERVALS[period];
      const starts: number[] = [];
      for (let at = found.start.getTime(); at < found.end.getTime(); at += seconds * 1_000) starts.push(at);
      const ofWebhook = Map.groupBy(found.intervals, ({ webhookId }) => webhookId);
      return {
        intervalSeconds: seconds,
        webhooks: [...new Set(webhookIds)]
          .filter((id) => found.webhookIds.has(id))
          .map((webhookId) => historyMessage(webhookId, starts, ofWebhook.get(webhookId) ?? [])),
      };
    },

    async listDispatchRuns(request, handler) {
      assertServiceWide(handler);
      const limit = pageSize(request.pageSize, RUN_SIZES);
      return { runs: (await listRuns(db, limit)).map(runMessage) };
    },

    async dispatchNow(_request, handler) {
      assertServiceWide(handler);
      if (!dispatchNow) {
        throw stateNotFit(
          "this process does not know where Temporal is; set TEMPORAL_ADDRESS for it, as for the workers",
        );
      }
      // Written first: after a crash, an entry about a dispatch that did not start is better than none about one that did.
      const entry = { action: "dispatch_requested", target: SERVICE_WIDE } as const;
      await auditedCall(db, handler, (_trx, record) => record(entry));
      await dispatchNow();
      return {};
    },
  };
}

/** @throws DomainError INVALID_ARGUMENT if a request names more webhooks */
function assertMost({ length }: readonly bigint[], most: number): void {
  if (length > most) throw invalidField("webhook_ids", `has ${length} ids; at most ${most} are allowed`);
}

/** A period of statistics, in hours; 24 by default. @throws DomainError INVALID_ARGUMENT for another one */
function assertPeriod(hours: number): 1 | 24 | 168 {
  const period = hours || 24;
  if (period === 1 || period === 24 || period === 168) return period;
  throw invalidField("hours", `is ${hours}; allowed: 1, 24, 168`);
}

/** The period that a request names by its ends. */
function otherPeriod(from: Timestamp | undefined, to: Timestamp | undefined, hours: number) {
  if (hours !== 0) throw invalidField("hours", "must be 0 in a request with from and to");
  if (!from || !to) throw invalidField(from ? "to" : "from", "is required: from and to belong together");
  const period = { start: timestampDate(from), end: timestampDate(to) };
  if (period.start >= period.end) throw invalidField("to", "must be later than from");
  return period;
}

/** A period up to now. @param hours 0 for exactly 24; otherwise the end is that of the present interval */
function periodOf(hours: number, buckets: number): { start: Date; end: Date } {
  const lengthMs = assertPeriod(hours) * 3_600_000;
  const intervalMs = lengthMs / buckets;
  const end = hours === 0 ? Date.now() : (Math.floor(Date.now() / intervalMs) + 1) * intervalMs;
  return { start: new Date(end - lengthMs), end: new Date(end) };
}

/** @param starts the starts of all intervals, in milliseconds */
function historyMessage(
  webhookId: bigint,
  starts: readonly number[],
  found: readonly WebhookIntervalRow[],
): MessageInitShape<typeof WebhookHistorySchema> {
  const byStart = new Map(found.map((each) => [each.start.getTime(), each]));
  const latency = LATENCY_BOUNDS_MS.map(() => 0).concat(0);
  let [attempts, failedAttempts] = [0n, 0n];
  for (const each of found) {
    attempts += each.attempts;
    failedAttempts += each.failedAttempts;
    for (const [index, n] of each.latency.entries()) latency[index] = (latency[index] ?? 0) + n;
  }
  return {
    webhookId,
    intervals: starts.map((at) => intervalMessage(at, byStart.get(at))),
    attempts,
    failedAttempts,
    ...percentiles(latency),
  };
}

/** @param row undefined for an interval without attempts */
function intervalMessage(
  at: number,
  row: WebhookIntervalRow | undefined,
): MessageInitShape<typeof WebhookIntervalSchema> {
  const start = timestampFromDate(new Date(at));
  if (!row) return { start };
  const { attempts, failedAttempts, latency } = row;
  return { start, attempts, failedAttempts, ...percentiles(latency) };
}

function percentiles(latency: readonly number[]): { latencyP50Ms?: number; latencyP95Ms?: number } {
  const [p50, p95] = [percentileMs(latency, 0.5), percentileMs(latency, 0.95)];
  return present({ latencyP50Ms: p50, latencyP95Ms: p95 });
}

/** An overview with all of its fields. */
type OverviewMessage = ReturnType<typeof overviewMessage>;

function overviewMessage({ bottlenecks, oldestPending, oldestRetrying, ...counts }: OverviewRow) {
  const held = CAUSES.filter((cause) => bottlenecks.includes(cause));
  return {
    ...counts,
    bottlenecks: held.map((cause) => BOTTLENECKS[cause].number),
    ...present({ oldestPending: timestampOf(oldestPending), oldestRetrying: timestampOf(oldestRetrying) }),
  } satisfies MessageInitShape<typeof OverviewSchema>;
}
