import { useQuery } from "@connectrpc/connect-query";
import { Anchor, Button, Group, Stack, Table, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconRefresh } from "@tabler/icons-react";
import { generatePath, Link } from "react-router";
import { type Delivery, DeliveryService, DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useMay } from "../../../api/session.tsx";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { Section } from "../../../parts/layout/section.tsx";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { DeliveryStateBadge } from "../../../parts/status/delivery-state.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { Loading } from "../../../parts/status/loading.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { SendFilteredDialog } from "../../deliveries/send/send-filtered.tsx";
import { deliveriesOf } from "../list/webhook-table.tsx";

const SHOWN = 10;
const REFRESH_MS = 5_000;

/** The newest deliveries of a webhook, kept current. */
export function LastDeliveries({ webhookId }: { webhookId: bigint }) {
  const { data, error, isPending, refetch } = useQuery(
    DeliveryService.method.listDeliveries,
    { webhookId, pageSize: SHOWN },
    { refetchInterval: REFRESH_MS },
  );
  const List = useBelow("md") ? Lines : Rows;
  return (
    <Section
      title="Last deliveries"
      actions={
        <>
          <Anchor component={Link} to={deliveriesOf(webhookId)} size="sm">
            All of its deliveries
          </Anchor>
          <ReplayFailed webhookId={webhookId} />
        </>
      }
    >
      {isPending ? (
        <Loading lines={5} />
      ) : !data ? (
        <Failure error={error} onRetry={() => void refetch()} />
      ) : data.deliveries.length === 0 ? (
        <Text size="sm" c="dimmed">
          None yet. The next event of its type is delivered to it, and shown here; a test event is, too.
        </Text>
      ) : (
        <List deliveries={data.deliveries} />
      )}
    </Section>
  );
}

const FAILED = [DeliveryState.FAILED];

/** Sends all failed deliveries of a webhook again, once that is confirmed. */
function ReplayFailed({ webhookId }: { webhookId: bigint }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const [opened, { open, close }] = useDisclosure();
  const readAnew = useReadAnew();
  if (!mayWrite) return null;
  return (
    <>
      <Button variant="default" size="xs" leftSection={<IconRefresh size={14} />} onClick={open}>
        Replay failed…
      </Button>
      <SendFilteredDialog
        opened={opened}
        onClose={close}
        filter={{ webhookId, states: FAILED }}
        onDone={() => void readAnew(DeliveryService)}
      />
    </>
  );
}

/** Deliveries on a wide screen. */
function Rows({ deliveries }: { deliveries: readonly Delivery[] }) {
  return (
    <Table.ScrollContainer minWidth={600}>
      <Table verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={130}>State</Table.Th>
            <Table.Th>Delivery</Table.Th>
            <Table.Th w={90}>Attempts</Table.Th>
            <Table.Th w={130}>Created</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {deliveries.map((delivery) => (
            <Table.Tr key={delivery.id}>
              <Table.Td>
                <DeliveryStateBadge state={delivery.state} />
              </Table.Td>
              <Table.Td>
                <DeliveryLink id={delivery.id} />
              </Table.Td>
              <Table.Td>{delivery.attemptCount}</Table.Td>
              <Table.Td>
                <Time value={delivery.created} relative size="sm" />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** Deliveries on a narrow screen. */
function Lines({ deliveries }: { deliveries: readonly Delivery[] }) {
  return (
    <Stack component="ul" p={0} m={0} gap="md" style={{ listStyle: "none" }}>
      {deliveries.map((delivery) => (
        <Stack key={delivery.id} component="li" gap={4}>
          <Group justify="space-between">
            <DeliveryStateBadge state={delivery.state} />
            <Text size="sm" c="dimmed">
              <Time value={delivery.created} relative />
            </Text>
          </Group>
          <DeliveryLink id={delivery.id} />
        </Stack>
      ))}
    </Stack>
  );
}

function DeliveryLink({ id }: { id: string }) {
  return (
    <Anchor
      component={Link}
      to={generatePath(PAGE_PATHS.delivery, { id })}
      size="sm"
      ff="monospace"
      style={{ overflowWrap: "anywhere" }}
    >
      {id}
    </Anchor>
  );
}
