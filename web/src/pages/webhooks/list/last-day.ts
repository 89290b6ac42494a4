import { useMemo } from "react";
import { StatsService, type WebhookStats } from "../../../../../gen/webhook/v1/stats_pb.ts";
import { useAllPages } from "../../../api/use-all-pages.ts";

const REFRESH_MS = 15_000;
/** Rounded down, so that 100 % means that none failed. */
const PERCENT = new Intl.NumberFormat(undefined, {
  style: "percent",
  maximumFractionDigits: 1,
  roundingMode: "trunc",
});

/** How each webhook did in the last day. */
export interface LastDay {
  /** Those that had deliveries, by id; undefined while it is not known. */
  stats: ReadonlyMap<bigint, WebhookStats> | undefined;
  /** Why it is not known, if that failed. */
  error: unknown;
  retry: () => void;
}

/** How some webhooks did in the last day, kept current. @param webhookIds "all" for every webhook; empty for none */
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
