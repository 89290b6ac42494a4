import { useQuery } from "@connectrpc/connect-query";
import { EndpointService } from "../../../../../gen/webhook/v1/endpoint_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";

const REFRESH_MS = 15_000;

/** The webhooks of a webhook's endpoint, kept current: the webhook alone if it has none. */
export function useEndpoint(webhook: Webhook): {
  webhooks: readonly Webhook[];
  /** False until the other webhooks have been read. */
  isKnown: boolean;
  error: unknown;
  retry: () => void;
} {
  const { endpointId } = webhook;
  const { data, error, refetch } = useQuery(
    EndpointService.method.getEndpoint,
    { endpointId: endpointId ?? "" },
    { enabled: endpointId !== undefined, refetchInterval: REFRESH_MS },
  );
  const webhooks = endpointId === undefined ? undefined : data?.endpoint?.webhooks;
  const isKnown = endpointId === undefined || webhooks !== undefined;
  return {
    webhooks: webhooks ?? [webhook],
    isKnown,
    error: webhooks ? null : error,
    retry: () => void refetch(),
  };
}
