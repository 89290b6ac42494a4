import { useMutation } from "@connectrpc/connect-query";
import { Button, Group, Select, Stack, Textarea } from "@mantine/core";
import { IconPencil, IconSend } from "@tabler/icons-react";
import { useState } from "react";
import type { WebhookProcess } from "../../../../../gen/webhook/v1/event_pb.ts";
import { type EventType, type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { fieldFailures } from "../../../api/failure.ts";
import { useSession } from "../../../api/session.tsx";
import { Section } from "../../../parts/layout/section.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { isHeldBack } from "../../../parts/status/webhook-health.tsx";
import { layOutJson } from "../../../parts/text/json-text.ts";
import { useEventTypes } from "../new/use-event-types.ts";
import { TestOutcome } from "./test-outcome.tsx";

/** The event type and payload of a test event that were chosen. */
interface Draft {
  process: number;
  payload: string;
}

/** Sends a test event to a webhook and follows its delivery. */
export function TestEvent({ webhook }: { webhook: Webhook }) {
  const send = useMutation(WebhookService.method.sendTestEvent);
  const { data } = useEventTypes();
  const types = useAllowedTypes(data?.processes ?? [], webhook.webhookProcess);
  const [draft, setDraft] = useState<Draft>();
  const [deliveryId, setDeliveryId] = useState<string>();
  const wrong = send.isError ? fieldFailures(send.error) : {};

  function run() {
    send.mutate(
      { webhookId: webhook.id, ...(draft ? { ...draft, process: draft.process as WebhookProcess } : {}) },
      { onSuccess: (answer) => setDeliveryId(answer.deliveryId) },
    );
  }

  function choose(number: number) {
    const sample = types.find((each) => each.number === number)?.sample ?? "{}";
    setDraft({ process: number, payload: layOutJson(sample) });
    send.reset();
  }

  return (
    <Section
      title="Test event"
      description={
        webhook.paused
          ? "The webhook is paused. A test event is sent nevertheless, once; its retries wait until the webhook is resumed."
          : isHeldBack(webhook)
            ? "The circuit breaker holds deliveries back. A test event is sent nevertheless, once; if the breaker is open, its success closes it."
            : "Sent to this webhook only. It is signed, retried and logged as any other, and carries the header X-Service-Webhook-Test: true."
      }
      actions={
        <>
          <Button
            variant="default"
            leftSection={<IconPencil size={16} />}
            aria-expanded={draft !== undefined}
            disabled={types.length === 0}
            onClick={() => (draft ? setDraft(undefined) : choose(webhook.webhookProcess))}
          >
            {draft ? "Use the sample" : "Edit payload"}
          </Button>
          <Button leftSection={<IconSend size={16} />} loading={send.isPending} onClick={run}>
            {deliveryId === undefined ? "Send test event" : "Send another"}
          </Button>
        </>
      }
    >
      {draft && (
        <Stack gap="sm">
          <Group gap="sm" align="flex-end">
            <Select
              label="Event type"
              data={types.map(({ number, name }) => ({ value: String(number), label: name }))}
              value={String(draft.process)}
              onChange={(value) => value && choose(Number(value))}
              allowDeselect={false}
              w={260}
            />
            <Button variant="subtle" onClick={() => choose(draft.process)}>
              Reset the payload
            </Button>
          </Group>
          <Textarea
            label="Payload"
            description="A JSON object of at most 32 KiB, sent as it stands here. It is not checked against the schema."
            value={draft.payload}
            onChange={(event) => setDraft({ ...draft, payload: event.currentTarget.value })}
            error={wrong.payload}
            autosize
            minRows={6}
            maxRows={20}
            spellCheck={false}
            autoComplete="off"
            styles={{
              input: { fontFamily: "var(--mantine-font-family-monospace)", fontSize: "0.8125rem" },
            }}
          />
        </Stack>
      )}
      {send.isError && wrong.payload === undefined && (
        <Failure error={send.error} title="No test event was sent" onRetry={run} />
      )}
      {deliveryId !== undefined && !send.isError && <TestOutcome key={deliveryId} deliveryId={deliveryId} />}
    </Section>
  );
}

/** The event types that the key may subscribe to, and the webhook's own. */
function useAllowedTypes(types: readonly EventType[], own: number): readonly EventType[] {
  const allowed: readonly number[] = useSession().apiKey?.allowedProcesses ?? [];
  if (allowed.length === 0) return types;
  return types.filter(({ number }) => number === own || allowed.includes(number));
}
