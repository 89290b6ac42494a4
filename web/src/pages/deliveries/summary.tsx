import { Anchor, DataList, Group, Stack, Text } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { createSearchParams, generatePath, Link } from "react-router";
import { type Delivery, type DeliveryRun, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { processName } from "../../../../src/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/page-paths.ts";
import { Address } from "../../parts/address.tsx";
import { CopyButton } from "../../parts/copy-button.tsx";
import { DELIVERY_STATES, DeliveryStateBadge } from "../../parts/delivery-state.tsx";
import { Section } from "../../parts/section.tsx";
import { Time } from "../../parts/time.tsx";
import { useNarrow } from "../../parts/use-narrow.ts";
import { Countdown } from "./countdown.tsx";

/** What a delivery is and where it stands. */
export function Summary({ delivery, run }: { delivery: Delivery; run: DeliveryRun | undefined }) {
  const narrow = useNarrow();
  return (
    <Section title="Summary">
      <DataList labelWidth="120px" orientation={narrow ? "vertical" : "horizontal"}>
        <Fact label="State">
          <Group gap="sm">
            {/* The state alone is read out when it changes: the countdown beside it changes every second. */}
            <div role="status">
              <DeliveryStateBadge state={delivery.state} />
            </div>
            <Text size="sm">
              <Meaning delivery={delivery} />
            </Text>
          </Group>
        </Fact>
        <Fact label="Webhook">
          <Anchor
            component={Link}
            size="sm"
            to={generatePath(PAGE_PATHS.webhook, { id: String(delivery.webhookId) })}
            style={{ overflowWrap: "anywhere" }}
          >
            #{String(delivery.webhookId)} · <Address url={delivery.url} />
          </Anchor>
        </Fact>
        <Fact label="Event type">{processName(delivery.webhookProcess)}</Fact>
        <Fact label="Event">
          <Group gap={4} wrap="nowrap">
            <Anchor
              component={Link}
              size="sm"
              ff="monospace"
              title="All deliveries of this event"
              to={`${PAGE_PATHS.deliveries}?${createSearchParams({ id: delivery.eventId })}`}
              style={{ overflowWrap: "anywhere" }}
            >
              {delivery.eventId}
            </Anchor>
            <CopyButton value={delivery.eventId} of="the event's id" />
          </Group>
        </Fact>
        <Fact label="Created">
          <Time value={delivery.created} />
        </Fact>
        {delivery.finished && (
          <Fact label="Finished">
            <Time value={delivery.finished} />
          </Fact>
        )}
        {run && (
          <Fact label="Dispatch run">
            <Run run={run} />
          </Fact>
        )}
      </DataList>
    </Section>
  );
}

function Run({ run: { workflowId, url } }: { run: DeliveryRun }) {
  return (
    <Stack gap={2} align="flex-start">
      {url !== undefined && (
        <Anchor href={url} target="_blank" rel="noreferrer" size="sm">
          Open in the Temporal UI <IconExternalLink size={14} aria-label="in a new tab" />
        </Anchor>
      )}
      <Group gap={4} wrap="nowrap">
        <Text size="sm" ff="monospace" c="dimmed" style={{ overflowWrap: "anywhere" }}>
          {workflowId}
        </Text>
        <CopyButton value={workflowId} of="the workflow's id" />
      </Group>
    </Stack>
  );
}

function Meaning({ delivery }: { delivery: Delivery }) {
  const { state, reason, nextAttempt } = delivery;
  if (state === DeliveryState.RETRYING && nextAttempt) {
    return (
      <>
        The last attempt failed; the next one is <Countdown until={nextAttempt} />.
      </>
    );
  }
  if (reason === "interrupted") {
    return "It was claimed ten times without a result: the workers that sent it died each time.";
  }
  return DELIVERY_STATES.find((each) => each.state === state)?.meaning;
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <DataList.Item>
      <DataList.ItemLabel>{label}</DataList.ItemLabel>
      <DataList.ItemValue style={{ minWidth: 0 }}>{children}</DataList.ItemValue>
    </DataList.Item>
  );
}
