import { useMemo } from "react";
import { StatsService, type WebhookStats } from "../../../../../gen/webhook/v1/stats_pb.ts";
import { useAllPages } from "../../../api/use-all-pages.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;
/** Rounded down, so that 100 % means that none failed. */
const PERCENT = new Intl.NumberFormat(undefined, {
  style: "percent",
  maximumFractionDigits: 1,
  roundingMode: "trunc",
});

/** The statistics of webhooks over the last day. */
export interface LastDay {
  /** The statistics of webhooks that had deliveries, by id. Undefined until they are read. */
  stats: ReadonlyMap<bigint, WebhookStats> | undefined;
  /** The error of reading them, if any. */
  error: unknown;
  retry: () => void;
}

/**
 * The statistics of some webhooks over the last day, kept current. @param webhookIds "all" for every webhook; empty
 * for none
 */
export function useLastDay(webhookIds: readonly bigint[] | "all"): LastDay {
  const { data, error, refetch } = useAllPages(
    StatsService.method.listWebhookStats,
    { webhookIds: webhookIds === "all" ? [] : [...webhookIds] },
    { enabled: webhookIds.length > 0, refreshMs: REFRESH_MS },
  );
  const stats = useMemo(() => data && new Map(data.webhooks.map((each) => [each.webhookId, each])), [data]);
  return { stats, error, retry: () => void refetch() };
}

/** The part of the deliveries that came to an end which arrived, 0 to 1; undefined while none has. */
export function successRate({
  delivered,
  failed,
}: Pick<WebhookStats, "delivered" | "failed">): number | undefined {
  const ended = delivered + failed;
  return ended === 0n ? undefined : Number(delivered) / Number(ended);
}

/** `99.2%`, as the viewer's language writes it. @param rate 0 to 1 */
export function percentage(rate: number): string {
  return PERCENT.format(rate);
}
