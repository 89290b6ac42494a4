import { useQuery } from "@connectrpc/connect-query";
import { ActionIcon, Anchor, Card, Checkbox, Group, Stack, Table, Text } from "@mantine/core";
import { IconCheck, IconChevronDown, IconChevronRight, IconX } from "@tabler/icons-react";
import { Fragment, useState } from "react";
import { generatePath, Link } from "react-router";
import {
  type Attempt,
  type Delivery,
  DeliveryService,
  DeliveryState,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { useBelow } from "../../parts/listing.tsx";
import { NextRetry } from "../../parts/overdue.tsx";
import { DeliveryStateBadge } from "../../parts/states.tsx";
import { AddressInOneLine } from "../../parts/text/breakable.tsx";
import { ShortId } from "../../parts/text/copy.tsx";
import { durationInWords } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { arrived, latestInWords, resultInWords } from "./delivery/results.tsx";

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

/** The size of icons, in pixels. */
const ICON_SIZE = 12;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 4_000;

/** Shows or hides the attempts of a delivery below it. */
export function UnfoldButton({
  delivery: { id },
  unfolded,
  onToggle,
}: {
  delivery: Delivery;
  unfolded: boolean;
  onToggle: () => void;
}) {
  const Icon = unfolded ? IconChevronDown : IconChevronRight;
  return (
    <ActionIcon
      size={18}
      variant="subtle"
      color="gray"
      aria-label={`Attempts of delivery ${id}`}
      aria-expanded={unfolded}
      title={unfolded ? "Hide the attempts" : "Show the attempts"}
      onClick={onToggle}
    >
      <Icon size={ICON_SIZE} />
    </ActionIcon>
  );
}

/** The attempts of a delivery, newest first, with one line each. They are read when they are shown. */
export function UnfoldedAttempts({ delivery }: { delivery: Delivery }) {
  const found = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId: delivery.id },
    {
      // Until what was read is what the list shows as the end.
      refetchInterval: ({ state: { data } }) =>
        isFinal(delivery) &&
        data?.delivery?.state === delivery.state &&
        data.delivery.attemptCount === delivery.attemptCount
          ? false
          : REFRESH_MS,
    },
  );
  return (
    <Refreshed query={found} loading={<Loading lines={1} />}>
      {({ attempts }) =>
        attempts.length === 0 ? (
          <Text size="sm" c="dimmed">
            {isFinal(delivery) ? "No attempts were made." : "No attempts were made yet."}
          </Text>
        ) : (
          <Stack
            component="ul"
            gap={2}
            p={0}
            m={0}
            style={{ listStyle: "none" }}
            aria-label={`Attempts of delivery ${delivery.id}, newest first`}
          >
            {attempts.toReversed().map((attempt) => (
              <Line key={attempt.number} attempt={attempt} />
            ))}
          </Stack>
        )
      }
    </Refreshed>
  );
}

function Line({ attempt }: { attempt: Attempt }) {
  const { number, started, durationMs } = attempt;
  const isGood = arrived(attempt);
  const Icon = isGood ? IconCheck : IconX;
  return (
    <Group component="li" gap="md" align="baseline" className="figures" style={{ rowGap: 0 }}>
      <Text span size="sm" miw={80}>
        <Text span inherit c={isGood ? "var(--rate-delivered)" : "var(--mantine-color-error)"} aria-hidden>
          <Icon size={ICON_SIZE} />
        </Text>{" "}
        Attempt {number}
      </Text>
      <Text span size="sm" c="dimmed">
        <Time value={started} />
      </Text>
      <Text span size="sm" flex="1 1 12rem" style={{ overflowWrap: "anywhere" }}>
        {resultInWords(attempt)}
      </Text>
      <Text span size="sm" c="dimmed">
        took {durationInWords(durationMs)}
      </Text>
    </Group>
  );
}

const FINAL: ReadonlySet<DeliveryState> = new Set([
  DeliveryState.DELIVERED,
  DeliveryState.FAILED,
  DeliveryState.CANCELLED,
  DeliveryState.FILTERED,
]);

/** Whether nothing more happens to a delivery by itself, so that it can be sent again. */
export function isFinal({ state }: Pick<Delivery, "state">): boolean {
  return FINAL.has(state);
}

/** Deliveries that somebody ticked. */
export interface Selection {
  ids: ReadonlySet<string>;
  toggle: (id: string) => void;
  set: (ids: Iterable<string>) => void;
}

/** The selected deliveries among the shown ones. Deliveries that are open or no longer shown are not selected. */
export function useSelection(shown: readonly Delivery[]): Selection {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const ids = new Set(shown.filter((each) => isFinal(each) && chosen.has(each.id)).map(({ id }) => id));
  return {
    ids,
    set: (wanted) => setChosen(new Set(wanted)),
    toggle(id) {
      const next = new Set(ids);
      if (!next.delete(id)) next.add(id);
      setChosen(next);
    },
  };
}
