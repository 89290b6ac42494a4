import { Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { useEndpoint } from "./use-endpoint.ts";

/** Says that a change concerns all event types of an endpoint; nothing for a webhook with a single one. */
export function SharedNote({ webhook }: { webhook: Webhook }) {
  const { webhooks } = useEndpoint(webhook);
  if (webhooks.length < 2) return null;
  return (
    <Text size="sm" c="dimmed">
      Applies to all {webhooks.length} event types of this endpoint: {typesInWords(webhooks)}.
    </Text>
  );
}

/** `OrderDispatched, DocumentCreated` */
export function typesInWords(webhooks: readonly Webhook[]): string {
  return webhooks.map(({ webhookProcess }) => processName(webhookProcess)).join(", ");
}
