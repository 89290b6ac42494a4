import type { DescMethodUnary, DescService } from "@bufbuild/protobuf";
import { createConnectQueryKey } from "@connectrpc/connect-query";
import { useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";

/**
 * Has everything that the page shows of a service, or of one of its methods, read anew: after something was done that
 * changes it. Resolves once what is shown is current.
 */
export function useReadAnew(): (of: DescService | DescMethodUnary) => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    (of) => {
      const queryKey =
        of.kind === "service"
          ? createConnectQueryKey({ schema: of, cardinality: undefined })
          : createConnectQueryKey({ schema: of, cardinality: undefined });
      return queries.invalidateQueries({ queryKey });
    },
    [queries],
  );
}
