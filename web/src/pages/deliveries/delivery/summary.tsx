import { useQuery } from "@connectrpc/connect-query";
import { Group, Stack, Text } from "@mantine/core";
import {
  type Delivery,
  type DeliveryRun,
  DeliveryService,
  DeliveryState,
  type Event,
  type GetDeliveryResponse,
} from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { isNotice } from "../../../../../src/contract/catalogue.ts";
import { typeName } from "../../../api/type-names.ts";
import { Dimmed, eventPage, PageLink, TemporalLink, webhookPage } from "../../../parts/inline.tsx";
import { type Fact, Facts, Section } from "../../../parts/page.tsx";
import { DELIVERY_STATES, DeliveryStateBadge, waitsInWords } from "../../../parts/states.tsx";
import { Breakable } from "../../../parts/text/breakable.tsx";
import { CopyButton } from "../../../parts/text/copy.tsx";
import { Time } from "../../../parts/time.tsx";
import { CustomerLink, useHasCustomers } from "../../customers/chosen.tsx";
import { NextAttempt, REASONS, useHeldBack } from "./results.tsx";

/** The facts and the state of a delivery. */
export function Summary({
  found: { event, run },
  delivery,
  inColumns,
}: {
  found: GetDeliveryResponse;
  delivery: Delivery;
  inColumns: boolean;
}) {
  const { webhookId, webhookName, url, eventId, created, finished, subject } = delivery;
  return (
    <Section title="Summary">
      <Facts
        inColumns={inColumns}
        facts={[
          [
            "State",
            <Group key="state" gap="sm">
              {/* The state alone is read out when it changes: the countdown beside it changes every second. */}
              <div role="status">
                <DeliveryStateBadge {...delivery} />
              </div>
              <span>
                <Meaning delivery={delivery} event={event} />
              </span>
            </Group>,
          ],
          [
            "Webhook",
            <PageLink key="webhook" to={webhookPage(webhookId)}>
              {webhookName === undefined ? `#${webhookId}` : webhookName} · <Breakable text={url} />
            </PageLink>,
          ],
          ["Event type", typeName(delivery)],
          subject !== undefined && ["Subject", subject],
          ["Event", <EventId key="event" id={eventId} linked={event !== undefined} />],
          ...usePublisherFacts(event),
          ["Created", <Time key="created" value={created} />],
          finished && ["Finished", <Time key="finished" value={finished} />],
          run && ["Dispatch run", <Run key="run" delivery={delivery} run={run} />],
        ]}
      />
    </Section>
  );
}

function EventId({ id, linked }: { id: string; linked: boolean }) {
  return (
    <Group gap={4} wrap="nowrap">
      {linked ? (
        <PageLink ff="monospace" to={eventPage(id)}>
          {id}
        </PageLink>
      ) : (
        <Text size="sm" ff="monospace">
          {id}
        </Text>
      )}
      <CopyButton value={id} of="the event’s id" />
    </Group>
  );
}

/** The activity is searched for again when the delivery has moved on to its retries. */
const ACTIVITY_FRESH_MS = 30_000;

function Run({ delivery, run: { workflowId, url } }: { delivery: Delivery; run: DeliveryRun }) {
  const { data } = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId: delivery.id, withActivity: true },
    { enabled: url !== undefined, staleTime: ACTIVITY_FRESH_MS },
  );
  const activity = data?.run?.activityUrl;
  return (
    <Stack gap={2} align="flex-start">
      {activity !== undefined && (
        <TemporalLink href={activity}>Open its activity in the Temporal UI</TemporalLink>
      )}
      {url !== undefined && <TemporalLink href={url}>Open in the Temporal UI</TemporalLink>}
      <Group gap={4} wrap="nowrap">
        <Dimmed ff="monospace" style={{ overflowWrap: "anywhere" }}>
          {workflowId}
        </Dimmed>
        <CopyButton value={workflowId} of="the workflow’s id" />
      </Group>
    </Stack>
  );
}

function Meaning({ delivery, event }: { delivery: Delivery; event: Event | undefined }) {
  const { state, reason, nextAttempt, waitingFor } = delivery;
  const held = useHeldBack(delivery, event);
  if (held !== undefined) return held;
  if (state === DeliveryState.RETRYING && nextAttempt) {
    return <NextAttempt delivery={delivery} due={nextAttempt} />;
  }
  const ended = reason === undefined ? undefined : REASONS[reason];
  return ended ?? waitsInWords(waitingFor) ?? DELIVERY_STATES.find((each) => each.state === state)?.meaning;
}

/** The user and the publisher of an event, as far as the session may see them. */
export function usePublisherFacts(event: Event | undefined): (Fact | false)[] {
  const hasCustomers = useHasCustomers();
  if (!event) return [];
  const { userId, test, apiKeyId, apiKeyName, idempotencyKey } = event;
  const by = apiKeyName ?? (apiKeyId === undefined ? undefined : `a removed key, ${apiKeyId}`);
  return [
    [hasCustomers ? "Customer" : "User", <CustomerLink key="user" id={userId} />],
    isNotice(event.process) && !test && ["Published by", "the service itself"],
    by !== undefined && [test ? "Test event by" : "Published by", by],
    idempotencyKey !== undefined && ["Idempotency key", idempotencyKey],
  ];
}
