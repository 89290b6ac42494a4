import { Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { useEndpoint } from "./use-endpoint.ts";

/** Says that a change concerns all event types of an endpoint; nothing for a webhook with a single one. */
export function SharedNote({ webhook }: { webhook: Webhook }) {
  const { webhooks, isKnown } = useEndpoint(webhook);
  if (isKnown && webhooks.length < 2) return null;
  return (
    <Text size="sm" c="dimmed">
      {isKnown
        ? `Applies to all ${webhooks.length} event types of this endpoint: ${typesInWords(webhooks)}.`
        : "Applies to all event types of this endpoint."}
    </Text>
  );
}

/** `OrderDispatched, DocumentCreated` */
export function typesInWords(webhooks: readonly Webhook[]): string {
  return webhooks.map(({ webhookProcess }) => processName(webhookProcess)).join(", ");
}
