import { useQuery } from "@connectrpc/connect-query";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";

const FRESH_MS = 60_000;

/** Every webhook that is registered now; undefined until they are read. */
export function useWebhooks(): readonly Webhook[] | undefined {
  return useQuery(WebhookService.method.listWebhooks, {}, { staleTime: FRESH_MS }).data?.webhooks;
}
