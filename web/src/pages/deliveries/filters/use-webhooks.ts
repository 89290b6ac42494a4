import { useMemo } from "react";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { isReachable } from "../../../api/reachable.ts";
import { useAllPages } from "../../../api/use-all-pages.ts";

/** The interval between reads, and the age up to which data is not read again, in milliseconds. */
const REFRESH_MS = 60_000;

/** Every webhook that the session can reach; undefined until they are read. */
export function useWebhooks(): readonly Webhook[] | undefined {
  const { data } = useAllPages(
    WebhookService.method.listWebhooks,
    {},
    { refreshMs: REFRESH_MS, freshMs: REFRESH_MS },
  );
  return useMemo(() => data?.webhooks.filter(isReachable), [data]);
}
