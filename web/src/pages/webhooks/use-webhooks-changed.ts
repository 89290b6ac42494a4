import { createConnectQueryKey } from "@connectrpc/connect-query";
import { useQueryClient } from "@tanstack/react-query";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";

/** Has everything that is told of webhooks read anew; resolves once what is shown is current. */
export function useWebhooksChanged(): () => Promise<void> {
  const queries = useQueryClient();
  return () =>
    queries.invalidateQueries({
      queryKey: createConnectQueryKey({ schema: WebhookService, cardinality: undefined }),
    });
}
