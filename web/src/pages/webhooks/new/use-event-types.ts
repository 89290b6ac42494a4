import { useQuery } from "@connectrpc/connect-query";
import { WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";

/** The catalogue as the service tells of it: what it holds changes only when the service does. */
export function useEventTypes() {
  return useQuery(WebhookService.method.listProcesses, {}, { staleTime: Number.POSITIVE_INFINITY });
}
