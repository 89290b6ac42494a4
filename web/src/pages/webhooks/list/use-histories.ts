import { useQuery } from "@connectrpc/connect-query";
import { useMemo } from "react";
import { StatsService, type WebhookHistory } from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import type { Period } from "../../../parts/charts/periods.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;

/** The attempts of some webhooks over a period, by id; undefined until they are read. */
export function useHistories(
  webhooks: readonly Webhook[],
  period: Period,
): ReadonlyMap<bigint, WebhookHistory> | undefined {
  const { data } = useQuery(
    StatsService.method.listWebhookHistory,
    { webhookIds: webhooks.map(({ id }) => id), hours: period.hours },
    { refetchInterval: REFRESH_MS },
  );
  return useMemo(() => data && new Map(data.webhooks.map((each) => [each.webhookId, each])), [data]);
}
