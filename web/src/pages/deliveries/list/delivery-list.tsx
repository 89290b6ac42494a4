import { Anchor, Card, Checkbox, Group, Stack, Table, Text } from "@mantine/core";
import { generatePath, Link } from "react-router";
import { type Delivery, DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { DeliveryStateBadge } from "../../../parts/status/delivery-state.tsx";
import { NextRetry } from "../../../parts/status/next-retry.tsx";
import { Breakable } from "../../../parts/text/breakable.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { isFinal, type Selection } from "./selection.ts";

/** The deliveries of a page. */
export interface DeliveryListProps {
  deliveries: readonly Delivery[];
  /** Undefined where nothing can be done with them. */
  selection?: Selection | undefined;
}

/** Deliveries as a table, or as cards where there is no room for one. */
export function DeliveryList(props: DeliveryListProps) {
  return useBelow("md") ? <Cards {...props} /> : <Rows {...props} />;
}

function Rows({ deliveries, selection }: DeliveryListProps) {
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table verticalSpacing="sm" aria-label="Deliveries" highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            {selection && (
              <Table.Th w={40}>
                <AllBox deliveries={deliveries} selection={selection} />
              </Table.Th>
            )}
            <Table.Th w={285}>Delivery</Table.Th>
            <Table.Th>Event and webhook</Table.Th>
            <Table.Th w={130}>State</Table.Th>
            <Table.Th w={90} ta="right">
              Attempts
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {deliveries.map((delivery) => (
            <Table.Tr
              key={delivery.id}
              bg={selection?.ids.has(delivery.id) ? "var(--mantine-color-default-hover)" : ""}
            >
              {selection && (
                <Table.Td>
                  <Box delivery={delivery} selection={selection} />
                </Table.Td>
              )}
              <Table.Td>
                <Identity delivery={delivery} />
              </Table.Td>
              <Table.Td>
                <Target delivery={delivery} />
              </Table.Td>
              <Table.Td>
                <Standing delivery={delivery} />
              </Table.Td>
              <Table.Td ta="right">{delivery.attemptCount}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Cards({ deliveries, selection }: DeliveryListProps) {
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
            <Stack gap="xs">
              <Group justify="space-between" align="flex-start" wrap="nowrap">
                <Standing delivery={delivery} />
                {selection && <Box delivery={delivery} selection={selection} />}
              </Group>
              <Identity delivery={delivery} />
              <Target delivery={delivery} />
              <Text size="sm" c="dimmed">
                {delivery.attemptCount === 1 ? "1 attempt" : `${delivery.attemptCount} attempts`}
              </Text>
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
}: Required<DeliveryListProps> & { label?: string; selection: Selection }) {
  const all = deliveries.filter(isFinal).map(({ id }) => id);
  const every = all.length > 0 && selection.ids.size === all.length;
  return (
    <Checkbox
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
      aria-label={`Select delivery ${delivery.id}`}
      title={final ? undefined : "It is under way; it can be sent again once it has come to an end"}
      checked={selection.ids.has(delivery.id)}
      disabled={!final}
      onChange={() => selection.toggle(delivery.id)}
    />
  );
}

function Identity({ delivery }: { delivery: Delivery }) {
  return (
    <Stack gap={2}>
      <Anchor
        component={Link}
        to={generatePath(PAGE_PATHS.delivery, { id: delivery.id })}
        size="xs"
        ff="monospace"
        style={{ overflowWrap: "anywhere" }}
      >
        {delivery.id}
      </Anchor>
      <Text size="sm" c="dimmed">
        <Time value={delivery.created} />
      </Text>
    </Stack>
  );
}

function Target({ delivery }: { delivery: Delivery }) {
  return (
    <Stack gap={2}>
      <Text size="sm">
        {processName(delivery.webhookProcess)} · #{String(delivery.webhookId)}
      </Text>
      <Text size="sm" c="dimmed" lineClamp={2} title={delivery.url} style={{ overflowWrap: "anywhere" }}>
        <Breakable text={delivery.url} />
      </Text>
    </Stack>
  );
}

/** The state, and what is still to be known of it. */
function Standing({ delivery }: { delivery: Delivery }) {
  return (
    <Stack gap={2} align="flex-start">
      <DeliveryStateBadge state={delivery.state} />
      {delivery.state === DeliveryState.RETRYING && delivery.nextAttempt && (
        <Text size="xs" c="dimmed">
          <NextRetry due={delivery.nextAttempt} />
        </Text>
      )}
      {delivery.reason && (
        <Text size="xs" c="dimmed">
          {delivery.reason}
        </Text>
      )}
    </Stack>
  );
}
