import type { DescMethodUnary, DescService } from "@bufbuild/protobuf";
import { createConnectQueryKey } from "@connectrpc/connect-query";
import { partialMatchKey, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { EndpointService } from "../../../gen/webhook/v1/endpoint_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";

/** What shows the same things as another service: endpoints consist of webhooks. */
const ALSO = new Map<DescService | DescMethodUnary, DescService>([[WebhookService, EndpointService]]);

/** The key of signing secrets. The audit log records each read, so somebody must have caused it. */
const SECRETS = createConnectQueryKey({
  schema: WebhookService.method.getWebhookSecret,
  cardinality: undefined,
});

/**
 * Has everything that the page shows of a service, or of one of its methods, read anew: after something was done that
 * changes it. Resolves once what is shown is current. Signing secrets are read anew only by their method.
 */
export function useReadAnew(): (of: DescService | DescMethodUnary) => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    async (of) => {
      const also = ALSO.get(of);
      const keys = [
        of.kind === "service"
          ? createConnectQueryKey({ schema: of, cardinality: undefined })
          : createConnectQueryKey({ schema: of, cardinality: undefined }),
        ...(also ? [createConnectQueryKey({ schema: also, cardinality: undefined })] : []),
      ];
      await Promise.all(
        keys.map((queryKey) =>
          queries.invalidateQueries({
            queryKey,
            predicate: (query) => of.kind === "rpc" || !partialMatchKey(query.queryKey, SECRETS),
          }),
        ),
      );
    },
    [queries],
  );
}
