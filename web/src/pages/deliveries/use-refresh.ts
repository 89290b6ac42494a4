import { createConnectQueryKey } from "@connectrpc/connect-query";
import { useQueryClient } from "@tanstack/react-query";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";

/** Has everything that is shown of deliveries read anew, after something was done with them. */
export function useRefresh(): () => Promise<void> {
  const queries = useQueryClient();
  return () =>
    queries.invalidateQueries({
      queryKey: createConnectQueryKey({ schema: DeliveryService, cardinality: undefined }),
    });
}
