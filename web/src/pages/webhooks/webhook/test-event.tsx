import { useMutation } from "@connectrpc/connect-query";
import { Button } from "@mantine/core";
import { IconSend } from "@tabler/icons-react";
import { useState } from "react";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { Section } from "../../../parts/layout/section.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { TestOutcome } from "./test-outcome.tsx";

/** Sends a webhook a test event, and shows what becomes of it. */
export function TestEvent({ webhook }: { webhook: Webhook }) {
  const send = useMutation(WebhookService.method.sendTestEvent);
  const [deliveryId, setDeliveryId] = useState<string>();
  const paused = webhook.paused !== undefined;

  function run() {
    send.mutate({ webhookId: webhook.id }, { onSuccess: (answer) => setDeliveryId(answer.deliveryId) });
  }

  return (
    <Section
      title="Test event"
      description={
        paused
          ? "A paused webhook is sent nothing: resume it first."
          : "Sends the sample of its event type to this webhook alone. It is signed, retried and logged as any other, and carries the header X-Service-Webhook-Test: true."
      }
      actions={
        <Button leftSection={<IconSend size={16} />} loading={send.isPending} disabled={paused} onClick={run}>
          {deliveryId === undefined ? "Send test event" : "Send another"}
        </Button>
      }
    >
      {send.isError && <Failure error={send.error} title="No test event was sent" onRetry={run} />}
      {deliveryId !== undefined && !send.isError && <TestOutcome key={deliveryId} deliveryId={deliveryId} />}
    </Section>
  );
}
