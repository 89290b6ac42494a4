import { Code, Stack, Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { Failure } from "../../../parts/status/failure.tsx";
import { Loading } from "../../../parts/status/loading.tsx";
import { typesInWords } from "../endpoint/shared-note.tsx";
import { useEndpoint } from "../endpoint/use-endpoint.ts";

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
