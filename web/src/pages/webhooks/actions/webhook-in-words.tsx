import { Code, Stack, Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";

/** Names the webhook that a question is about. */
export function WebhookInWords({ webhook }: { webhook: Webhook }) {
  return (
    <Stack gap={4}>
      <Text size="sm" fw={600}>
        {processName(webhook.webhookProcess)}
      </Text>
      <Code block style={{ whiteSpace: "pre-wrap" }}>
        {webhook.url}
      </Code>
    </Stack>
  );
}
