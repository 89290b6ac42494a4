import { callUnaryMethod, useMutation, useQuery, useTransport } from "@connectrpc/connect-query";
import { Button, Group, Select, Stack, Text, Textarea } from "@mantine/core";
import { IconPencil, IconSend } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import {
  DeliveryService,
  DeliveryState,
  type GetDeliveryResponse,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { type EventType, type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useEventTypes } from "../../api/event-types.ts";
import { fieldFailures } from "../../api/failure.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useIsLimited, useSession } from "../../api/session.tsx";
import { processName } from "../../api/type-names.ts";
import { Failure, Loading, notifyFailure } from "../../parts/failure.tsx";
import { MAX_CHOICES } from "../../parts/filters.tsx";
import { deliveryPage, PageLink } from "../../parts/inline.tsx";
import { NextRetry } from "../../parts/overdue.tsx";
import { Section } from "../../parts/page.tsx";
import { DELIVERY_STATES, DeliveryStateBadge, isHeldBack } from "../../parts/states.tsx";
import { layOutJson } from "../../parts/text/json-text.ts";
import { durationInWords } from "../../parts/text/words.ts";
import { latestInWords, REASONS } from "../deliveries/delivery/results.tsx";

/** The event type and payload of a test event that were chosen. */
interface Draft {
  process: number;
  payload: string;
}

/** Sends a test event to a webhook and follows its delivery. */
export function TestEvent({ webhook }: { webhook: Webhook }) {
  const send = useMutation(WebhookService.method.sendTestEvent);
  const { data } = useEventTypes();
  const types = useAllowedTypes(data ?? [], webhook.webhookProcess);
  const transport = useTransport();
  const [draft, setDraft] = useState<Draft>();
  const [deliveryId, setDeliveryId] = useState<string>();
  const wrong = send.isError ? fieldFailures(send.error) : {};

  function run() {
    send.mutate(
      { webhookId: webhook.id, ...(draft ? { ...draft, process: draft.process as WebhookProcess } : {}) },
      { onSuccess: (answer) => setDeliveryId(answer.deliveryId) },
    );
  }

  async function choose(number: number) {
    const asked = { processes: [number as WebhookProcess] };
    try {
      const { processes } = await callUnaryMethod(transport, WebhookService.method.listProcesses, asked);
      const sample = processes.find((each) => each.number === number)?.sample ?? "{}";
      setDraft({ process: number, payload: layOutJson(sample) });
      send.reset();
    } catch (error) {
      notifyFailure("The sample was not read", error);
    }
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
              data={types.map(({ number, name }) => ({
                value: String(number),
                label: processName(number, name),
              }))}
              value={String(draft.process)}
              onChange={(value) => value && choose(Number(value))}
              allowDeselect={false}
              searchable={types.length > MAX_CHOICES}
              limit={MAX_CHOICES}
              w={260}
            />
            <Button variant="subtle" onClick={() => choose(draft.process)}>
              Reset the payload
            </Button>
          </Group>
          <Textarea
            label="Payload"
            description="A JSON object of at most 256 KiB, sent as it stands here. It is not checked against the schema."
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

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 1_000;

/** Follows the delivery of a test event to its end. */
function TestOutcome({ deliveryId }: { deliveryId: string }) {
  const { data, error, refetch } = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId },
    { refetchInterval: ({ state }) => (state.data?.delivery?.finished ? false : REFRESH_MS) },
  );
  const state = data?.delivery?.state;
  const dispatch = useMutation(StatsService.method.dispatchNow);
  const readAnew = useReadAnew();
  // A run sends the deliveries of all webhooks: keys of apps cannot start one.
  const isLimited = useIsLimited();
  useEffect(() => {
    if (state === undefined) return;
    // The list of the webhook's deliveries, below, says the same at the same time.
    void readAnew(DeliveryService.method.listDeliveries);
  }, [state, readAnew]);

  if (!data?.delivery) {
    return error ? <Failure error={error} onRetry={refetch} /> : <Loading lines={2} />;
  }
  const { delivery } = data;
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <DeliveryStateBadge {...delivery} />
        <Text size="sm" role="status">
          {inWords(data)}
        </Text>
        {delivery.state === DeliveryState.RETRYING && delivery.nextAttempt && (
          <Text size="sm">
            <NextRetry due={delivery.nextAttempt} />
          </Text>
        )}
      </Group>
      <Group gap="md">
        {delivery.state === DeliveryState.PENDING && !isLimited && !dispatch.isSuccess && (
          <Button variant="default" loading={dispatch.isPending} onClick={() => dispatch.mutate({})}>
            Dispatch now
          </Button>
        )}
        <PageLink to={deliveryPage(deliveryId)}>The delivery, with every attempt</PageLink>
      </Group>
      <Failure error={dispatch.error} title="Nothing was dispatched" />
    </Stack>
  );
}

/** The outcome of a delivery so far. */
function inWords({ delivery, attempts }: GetDeliveryResponse): string | undefined {
  if (!delivery) return undefined;
  const after = delivery.state === DeliveryState.DELIVERED ? attempts.at(-1)?.durationMs : undefined;
  const told =
    REASONS[delivery.reason ?? ""] ??
    (delivery.attemptCount > 0 ? latestInWords(delivery) : undefined) ??
    DELIVERY_STATES.find(({ state }) => state === delivery.state)?.meaning;
  return after === undefined ? told : `${told} after ${durationInWords(after)}`;
}
