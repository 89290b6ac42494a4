import { useQuery } from "@connectrpc/connect-query";
import { Code, Group, Stack, Text } from "@mantine/core";
import { useMemo } from "react";
import { useParams } from "react-router";
import {
  DeliveryService,
  type Event,
  type GetEventResponse,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { processName } from "../../api/type-names.ts";
import { Failure, Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { ItemStatus } from "../../parts/lists.tsx";
import { BackLink, Facts, PageTitle, Section } from "../../parts/page.tsx";
import { DeliveryStateBadge } from "../../parts/states.tsx";
import { CodeBlock, CopyButton } from "../../parts/text/copy.tsx";
import { layOutJson } from "../../parts/text/json-text.ts";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { usePublisherFacts } from "../deliveries/delivery/summary.tsx";
import { DeliveryList, isFinal } from "../deliveries/delivery-list.tsx";
import { FailureReasons } from "../deliveries/failure-reasons.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 4_000;
/** Recipients on the page; the list of deliveries has them all. */
const SHOWN = 50;
/** The maximum height of the body, in pixels. */
const BODY_HEIGHT = 480;
/** The page of an event: its publisher, payload and deliveries. Updates live until the last delivery ends. */
export default function EventPage() {
  const { id = "" } = useParams();
  const found = useQuery(
    DeliveryService.method.getEvent,
    { eventId: id },
    { refetchInterval: ({ state: { data } }) => (data && isOpen(data) ? REFRESH_MS : false) },
  );
  const event = found.data?.event;
  const publisherFacts = usePublisherFacts(event);
  return (
    <>
      <BackLink to={PAGE_PATHS.deliveries}>All deliveries</BackLink>
      <PageTitle
        title={event ? titleOf(event) : "Event"}
        description={
          <Group gap={4} wrap="nowrap">
            <Code>{id}</Code>
            <CopyButton value={id} of="the event’s id" />
          </Group>
        }
      />
      {found.data && event ? (
        <Stack gap="lg">
          <Failure error={found.error} onRetry={found.refetch} />
          <Section title="Summary">
            <Facts
              inColumns
              facts={[
                ["Event type", processName(event.process, event.webhookProcessName)],
                event.subject !== undefined && ["Subject", event.subject],
                ["Time", <Time key="time" value={event.time} />],
                ["Published", <Time key="published" value={event.published} />],
                ...publisherFacts,
              ]}
            />
          </Section>
          <Recipients id={id} found={found.data} />
          <Payload event={event} payload={found.data.payload} />
        </Stack>
      ) : (
        <ItemStatus query={found} notFound="EVENT_NOT_FOUND" noun="event">
          The id is wrong, or the event is older than the retention and was deleted.
        </ItemStatus>
      )}
    </>
  );
}

function isOpen({ deliveries }: Pick<GetEventResponse, "deliveries">): boolean {
  return deliveries.some(({ state }) => !isFinal({ state }));
}

function titleOf({ process, webhookProcessName, subject }: Event): string {
  const type = processName(process, webhookProcessName);
  return subject === undefined ? type : `${type} ${subject}`;
}

/** The webhooks that get the event, and what became of each delivery. */
function Recipients({ id, found }: { id: string; found: GetEventResponse }) {
  const counts = found.deliveries;
  const list = useQuery(
    DeliveryService.method.listDeliveries,
    { eventId: id, pageSize: SHOWN },
    { refetchInterval: isOpen(found) ? REFRESH_MS : false },
  );
  const all = counts.reduce((sum, { count }) => sum + count, 0);
  return (
    <Section
      title="Recipients"
      description={all === 0 ? "No webhook was registered for it." : countOf(all, "delivery", "deliveries")}
      actions={
        all > 0 && (
          <PageLink to={listPage(PAGE_PATHS.deliveries, { search: id })}>In the list of deliveries</PageLink>
        )
      }
    >
      {all > 0 && (
        <>
          <Group gap="md">
            {counts.map(({ state, count }) => (
              <Group key={state} gap={6}>
                <Text size="sm" fw={600}>
                  {count.toLocaleString()}
                </Text>
                <DeliveryStateBadge state={state} />
              </Group>
            ))}
          </Group>
          <FailureReasons filter={{ eventId: id }} />
          <Refreshed query={list} loading={<Loading lines={5} />}>
            {({ deliveries }) => <DeliveryList deliveries={deliveries} ofOne="event" />}
          </Refreshed>
        </>
      )}
    </Section>
  );
}

function Payload({ event, payload }: { event: Event; payload: string }) {
  const laidOut = useMemo(() => layOutJson(payload), [payload]);
  return (
    <Section title="Payload">
      {event.erased ? (
        <Dimmed>The payload was erased.</Dimmed>
      ) : (
        <CodeBlock of="the payload" copied={payload} maxHeight={BODY_HEIGHT}>
          {laidOut}
        </CodeBlock>
      )}
    </Section>
  );
}
