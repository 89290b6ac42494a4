import { Anchor, Card, Checkbox, Group, Stack, Table, Text } from "@mantine/core";
import { Fragment, useState } from "react";
import { generatePath, Link } from "react-router";
import { type Delivery, DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { DeliveryStateBadge } from "../../../parts/status/delivery-state.tsx";
import { NextRetry } from "../../../parts/status/next-retry.tsx";
import { AddressInOneLine } from "../../../parts/text/breakable.tsx";
import { durationInWords } from "../../../parts/text/duration.ts";
import { ShortId } from "../../../parts/text/short-id.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { latestInWords } from "../delivery/result-words.ts";
import { isFinal, type Selection } from "./selection.ts";
import { UnfoldButton, UnfoldedAttempts } from "./unfolded-attempts.tsx";

/** The deliveries of a page. */
export interface DeliveryListProps {
  deliveries: readonly Delivery[];
  /** Undefined where nothing can be done with them. */
  selection?: Selection | undefined;
  /** The fact that all deliveries share, which is not repeated in each row. */
  ofOne?: "event" | "webhook";
}

/** The deliveries whose attempts are shown. */
interface Unfolding {
  ids: ReadonlySet<string>;
  toggle: (id: string) => void;
}

interface ListProps extends DeliveryListProps {
  unfolding: Unfolding;
}

/**
 * Deliveries as a table with one line each, or as cards where there is no room for one. Each unfolds to show its
 * attempts.
 */
export function DeliveryList(props: DeliveryListProps) {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  function toggle(id: string) {
    const next = new Set(ids);
    if (!next.delete(id)) next.add(id);
    setIds(next);
  }
  const List = useBelow("lg") ? Cards : Rows;
  return <List {...props} unfolding={{ ids, toggle }} />;
}

/** The columns that every table has. */
const COLUMNS = 6;

function Rows({ deliveries, selection, ofOne, unfolding }: ListProps) {
  const columns = COLUMNS + (selection ? 1 : 0) + (ofOne ? 1 : 2);
  return (
    <Table.ScrollContainer minWidth={840}>
      <Table
        verticalSpacing={3}
        horizontalSpacing="xs"
        layout="fixed"
        fz="sm"
        aria-label="Deliveries"
        highlightOnHover
      >
        <Table.Thead>
          <Table.Tr>
            {selection && (
              <Table.Th w={36}>
                <AllBox deliveries={deliveries} selection={selection} />
              </Table.Th>
            )}
            <Table.Th w={118}>Delivery</Table.Th>
            <Table.Th w={102}>Created</Table.Th>
            {ofOne !== "event" && <Table.Th w={ofOne ? "24%" : "17%"}>Event</Table.Th>}
            {ofOne !== "webhook" && <Table.Th>Webhook</Table.Th>}
            <Table.Th w={96}>State</Table.Th>
            <Table.Th w={ofOne ? undefined : "20%"}>Last result</Table.Th>
            <Table.Th w={46} ta="right" title="The number of attempts">
              Tries
            </Table.Th>
            <Table.Th w={64} ta="right" title="The duration of the last attempt">
              Took
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {deliveries.map((delivery) => (
            <Fragment key={delivery.id}>
              <Table.Tr bg={selection?.ids.has(delivery.id) ? "var(--mantine-color-default-hover)" : ""}>
                {selection && (
                  <Table.Td>
                    <Box delivery={delivery} selection={selection} />
                  </Table.Td>
                )}
                <Table.Td>
                  <Identity delivery={delivery} unfolding={unfolding} />
                </Table.Td>
                <Table.Td>
                  <Time value={delivery.created} relative="short" />
                </Table.Td>
                {ofOne !== "event" && (
                  <Table.Td>
                    <Subject delivery={delivery} />
                  </Table.Td>
                )}
                {ofOne !== "webhook" && (
                  <Table.Td>
                    <Target delivery={delivery} />
                  </Table.Td>
                )}
                <Table.Td>
                  <DeliveryStateBadge state={delivery.state} />
                </Table.Td>
                <Table.Td>
                  <Result delivery={delivery} />
                </Table.Td>
                <Table.Td ta="right">{delivery.attemptCount}</Table.Td>
                <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
                  {delivery.durationMs !== undefined && durationInWords(delivery.durationMs)}
                </Table.Td>
              </Table.Tr>
              {unfolding.ids.has(delivery.id) && (
                <Table.Tr>
                  <Table.Td colSpan={columns} pl="xl" pb="xs">
                    <UnfoldedAttempts delivery={delivery} />
                  </Table.Td>
                </Table.Tr>
              )}
            </Fragment>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Cards({ deliveries, selection, ofOne, unfolding }: ListProps) {
  return (
    <Stack gap="sm">
      {selection && (
        <AllBox
          deliveries={deliveries}
          selection={selection}
          label="All of this page that can be sent again"
        />
      )}
      <Stack gap="sm" role="list" aria-label="Deliveries">
        {deliveries.map((delivery) => (
          <Card key={delivery.id} withBorder padding="sm" role="listitem">
            <Stack gap={4}>
              <Group justify="space-between" align="flex-start" wrap="nowrap">
                <DeliveryStateBadge state={delivery.state} />
                {selection && <Box delivery={delivery} selection={selection} />}
              </Group>
              {ofOne !== "event" && <Subject delivery={delivery} />}
              {ofOne !== "webhook" && <Target delivery={delivery} />}
              <Result delivery={delivery} />
              <Group justify="space-between">
                <Identity delivery={delivery} unfolding={unfolding} />
                <Text size="sm" c="dimmed">
                  <Time value={delivery.created} relative /> ·{" "}
                  {delivery.attemptCount === 1 ? "1 attempt" : `${delivery.attemptCount} attempts`}
                </Text>
              </Group>
              {unfolding.ids.has(delivery.id) && <UnfoldedAttempts delivery={delivery} />}
            </Stack>
          </Card>
        ))}
      </Stack>
    </Stack>
  );
}

function AllBox({
  deliveries,
  selection,
  label,
}: Required<Pick<DeliveryListProps, "deliveries">> & { label?: string; selection: Selection }) {
  const all = deliveries.filter(isFinal).map(({ id }) => id);
  const every = all.length > 0 && selection.ids.size === all.length;
  return (
    <Checkbox
      size="xs"
      label={label}
      aria-label={label ? undefined : "Select all of this page that can be sent again"}
      checked={every}
      indeterminate={selection.ids.size > 0 && !every}
      disabled={all.length === 0}
      onChange={() => selection.set(every ? [] : all)}
    />
  );
}

function Box({ delivery, selection }: { delivery: Delivery; selection: Selection }) {
  const final = isFinal(delivery);
  return (
    <Checkbox
      size="xs"
      aria-label={`Select delivery ${delivery.id}`}
      title={final ? undefined : "In progress; it can be sent again after it has ended"}
      checked={selection.ids.has(delivery.id)}
      disabled={!final}
      onChange={() => selection.toggle(delivery.id)}
    />
  );
}

function Identity({ delivery, unfolding }: { delivery: Delivery; unfolding: Unfolding }) {
  const { id } = delivery;
  return (
    <Group gap={2} wrap="nowrap" w="max-content">
      <UnfoldButton
        delivery={delivery}
        unfolded={unfolding.ids.has(id)}
        onToggle={() => unfolding.toggle(id)}
      />
      <ShortId id={id} of="the delivery’s id" to={generatePath(PAGE_PATHS.delivery, { id })} />
    </Group>
  );
}

/** The event type, and what the event is about. */
function Subject({ delivery: { webhookProcess, subject, eventId } }: { delivery: Delivery }) {
  const type = processName(webhookProcess);
  return (
    <Anchor
      component={Link}
      to={generatePath(PAGE_PATHS.event, { id: eventId })}
      size="sm"
      display="block"
      truncate
      title={subject === undefined ? type : `${type} ${subject}`}
      c="inherit"
    >
      {subject === undefined ? (
        type
      ) : (
        <>
          <Text span inherit fw={600}>
            {subject}
          </Text>{" "}
          <Text span inherit c="dimmed">
            {type}
          </Text>
        </>
      )}
    </Anchor>
  );
}

/** The host and path of the webhook. */
function Target({ delivery: { webhookId, url } }: { delivery: Delivery }) {
  return (
    <Text size="sm" truncate title={`#${webhookId} ${url}`}>
      <AddressInOneLine url={url} />
    </Text>
  );
}

/** The outcome of the latest attempt, and the time of the next one. */
function Result({ delivery }: { delivery: Delivery }) {
  const { state, nextAttempt } = delivery;
  const words = latestInWords(delivery);
  return (
    <Text size="sm" truncate c={state === DeliveryState.DELIVERED ? "dimmed" : undefined} title={words}>
      {words}
      {state === DeliveryState.RETRYING && nextAttempt && (
        <Text span inherit c="dimmed">
          {words && ", "}
          <NextRetry due={nextAttempt} />
        </Text>
      )}
    </Text>
  );
}
