import { Connection } from "@temporalio/client";

/**
 * Resolves if the Temporal server at `address` responds, knows `namespace`, and has the search attributes; otherwise
 * rejects within about 5 s.
 */
export async function assertTemporalServes(
  address: string,
  namespace: string,
  searchAttributes: readonly string[],
): Promise<void> {
  const connection = await Connection.connect({
    address,
    tls: false,
    // Without it, gRPC of Node applies `https_proxy` and `http_proxy`, also to 127.0.0.1.
    channelArgs: { "grpc.enable_http_proxy": 0 },
    connectTimeout: 2_000,
  });
  try {
    await connection.withDeadline(Date.now() + 3_000, async () => {
      await connection.workflowService.describeNamespace({ namespace });
      if (searchAttributes.length === 0) return;
      const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
      const absent = searchAttributes.filter((name) => !(name in customAttributes));
      if (absent.length > 0) throw new Error(`search attributes not registered yet: ${absent.join(", ")}`);
    });
  } finally {
    await connection.close().catch(() => {});
  }
}
