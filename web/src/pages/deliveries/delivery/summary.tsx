import { useQuery } from "@connectrpc/connect-query";
import { Anchor, Group, Stack, Text } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import { generatePath, Link } from "react-router";
import {
  type Delivery,
  type DeliveryRun,
  DeliveryService,
  DeliveryState,
  type Event,
} from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { isNotice, processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { type Fact, Facts, Section } from "../../../parts/page.tsx";
import { DELIVERY_STATES, DeliveryStateBadge } from "../../../parts/states.tsx";
import { Breakable } from "../../../parts/text/breakable.tsx";
import { CopyButton } from "../../../parts/text/copy.tsx";
import { Time } from "../../../parts/time.tsx";
import { NextAttempt, REASONS, useHeldBack } from "./results.tsx";

/** The facts and the state of a delivery. */
export function Summary({
  delivery,
  event,
  run,
}: {
  delivery: Delivery;
  /** Undefined if it is not stored any more. */
  event: Event | undefined;
  run: DeliveryRun | undefined;
}) {
  const { state, webhookId, url, webhookProcess, eventId, created, finished, subject } = delivery;
  return (
    <Section title="Summary">
      <Facts
        inColumns
        facts={[
          [
            "State",
            <Group key="state" gap="sm">
              {/* The state alone is read out when it changes: the countdown beside it changes every second. */}
              <div role="status">
                <DeliveryStateBadge state={state} />
              </div>
              <span>
                <Meaning delivery={delivery} event={event} />
              </span>
            </Group>,
          ],
          [
            "Webhook",
            <Anchor
              key="webhook"
              component={Link}
              size="sm"
              to={generatePath(PAGE_PATHS.webhook, { id: String(webhookId) })}
            >
              #{String(webhookId)} · <Breakable text={url} />
            </Anchor>,
          ],
          ["Event type", processName(webhookProcess)],
          subject !== undefined && ["Subject", subject],
          ["Event", <EventId key="event" id={eventId} linked={event !== undefined} />],
          ...publisherFacts(event),
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
        <Anchor component={Link} size="sm" ff="monospace" to={generatePath(PAGE_PATHS.event, { id })}>
          {id}
        </Anchor>
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
        <Anchor href={activity} target="_blank" rel="noreferrer" size="sm">
          Open its activity in the Temporal UI <IconExternalLink size={14} aria-label="in a new tab" />
        </Anchor>
      )}
      {url !== undefined && (
        <Anchor href={url} target="_blank" rel="noreferrer" size="sm">
          Open in the Temporal UI <IconExternalLink size={14} aria-label="in a new tab" />
        </Anchor>
      )}
      <Group gap={4} wrap="nowrap">
        <Text size="sm" ff="monospace" c="dimmed" style={{ overflowWrap: "anywhere" }}>
          {workflowId}
        </Text>
        <CopyButton value={workflowId} of="the workflow’s id" />
      </Group>
    </Stack>
  );
}

function Meaning({ delivery, event }: { delivery: Delivery; event: Event | undefined }) {
  const { state, reason, nextAttempt } = delivery;
  const held = useHeldBack(delivery, event);
  if (held !== undefined) return held;
  if (state === DeliveryState.RETRYING && nextAttempt) {
    return <NextAttempt delivery={delivery} due={nextAttempt} />;
  }
  const ended = reason === undefined ? undefined : REASONS[reason];
  return ended ?? DELIVERY_STATES.find((each) => each.state === state)?.meaning;
}

/** The user and the publisher of an event, as far as the session may see them. */
export function publisherFacts(event: Event | undefined): (Fact | false)[] {
  if (!event) return [];
  const { userId, test, apiKeyId, apiKeyName, idempotencyKey } = event;
  const by = apiKeyName ?? (apiKeyId === undefined ? undefined : `a removed key, ${apiKeyId}`);
  return [
    ["User", userId],
    isNotice(event.process) && !test && ["Published by", "the service itself"],
    by !== undefined && [test ? "Test event by" : "Published by", by],
    idempotencyKey !== undefined && ["Idempotency key", idempotencyKey],
  ];
}
