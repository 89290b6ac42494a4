import { Code, Stack, Text } from "@mantine/core";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useLive } from "../../api/queries.ts";
import { typeName } from "../../api/type-names.ts";
import { Failure, Loading } from "../../parts/failure.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { capitalized, countOf } from "../../parts/text/words.ts";

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
  const { data, error, refetch } = useLive(
    EndpointService.method.getEndpoint,
    { endpointId: endpointId ?? "" },
    REFRESH_MS,
    endpointId !== undefined,
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

/** Says that a change concerns all event types of an endpoint; nothing for a webhook with a single one. */
export function SharedNote({ webhook }: { webhook: Webhook }) {
  const { webhooks, isKnown } = useEndpoint(webhook);
  if (isKnown && webhooks.length < 2) return null;
  return (
    <Dimmed>
      {isKnown
        ? `Applies to all ${webhooks.length} event types of this endpoint: ${typesInWords(webhooks)}.`
        : "Applies to all event types of this endpoint."}
    </Dimmed>
  );
}

/** `OrderDispatched, DocumentCreated` */
export function typesInWords(webhooks: readonly Webhook[]): string {
  return webhooks.map(typeName).join(", ");
}

interface WebhookInWordsProps {
  webhook: Webhook;
  /** Whether the question is about this event type alone, and not about all of its endpoint. */
  alone?: boolean;
}

/** Names the webhook that a question is about, or all event types of its endpoint. */
export function WebhookInWords({ webhook, alone = false }: WebhookInWordsProps) {
  const { webhooks, isKnown, error, retry } = useEndpoint(webhook);
  return (
    <Stack gap={4}>
      {isKnown || alone ? (
        <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
          {typesInWords(alone ? [webhook] : webhooks)}
        </Text>
      ) : error === null ? (
        <Loading lines={1} />
      ) : (
        <Failure error={error} title="Could not load the event types of this endpoint" onRetry={retry} />
      )}
      <Code block style={{ whiteSpace: "pre-wrap" }}>
        {webhook.url}
      </Code>
    </Stack>
  );
}

/** Beyond this many it is said that there are more. */
const MOST = 100;
/** The interval between refreshes, in milliseconds. */
const UNDELIVERED_REFRESH_MS = 5_000;
const OPEN = [DeliveryState.PENDING, DeliveryState.DELIVERING, DeliveryState.RETRYING];

/**
 * The number of a webhook's open deliveries in words, kept current: `12 deliveries`, `more than 100 deliveries`.
 * Undefined while it is not known; "" when there are none.
 *
 * @param enabled false while nobody looks
 */
export function useUndelivered(webhookId: bigint, enabled: boolean): string | undefined {
  const { data } = useLive(
    DeliveryService.method.listDeliveries,
    { webhookId, states: OPEN, pageSize: MOST },
    UNDELIVERED_REFRESH_MS,
    enabled,
  );
  if (!data) return undefined;
  const count = data.deliveries.length;
  if (count === 0) return "";
  if (data.nextPageToken) return `more than ${MOST} deliveries`;
  return countOf(count, "delivery", "deliveries");
}

/**
 * What becomes of undelivered deliveries when a webhook is deleted.
 *
 * @param undelivered as useUndelivered has it
 */
export function cancelInWords(undelivered: string | undefined): string {
  if (undelivered === undefined) return "Undelivered deliveries are cancelled.";
  if (undelivered === "") return "Nothing waits to be delivered at the moment.";
  const begun = capitalized(undelivered);
  return `${begun} not delivered yet ${undelivered === "1 delivery" ? "is" : "are"} cancelled.`;
}
