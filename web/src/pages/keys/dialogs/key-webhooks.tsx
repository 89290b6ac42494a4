import { Code, List, Stack, Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { countOf } from "../../../parts/text/count-of.ts";

const NAMED = 5;

/** The number of a key's webhooks, and the first of them. */
export function KeyWebhooks({ webhooks }: { webhooks: readonly Webhook[] }) {
  if (webhooks.length === 0) return <Text size="sm">The key has no webhooks.</Text>;
  const more = webhooks.length - NAMED;
  return (
    <Stack gap="xs">
      <Text size="sm">The key has {countOf(webhooks.length, "webhook", "webhooks")}:</Text>
      <List size="sm" spacing={6}>
        {webhooks.slice(0, NAMED).map((webhook) => (
          <List.Item key={String(webhook.id)} styles={{ itemWrapper: { display: "block" } }}>
            {processName(webhook.webhookProcess)}
            <Code display="block">{webhook.url}</Code>
          </List.Item>
        ))}
        {more > 0 && <List.Item c="dimmed">and {more.toLocaleString()} more</List.Item>}
      </List>
    </Stack>
  );
}
