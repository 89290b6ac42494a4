import { Anchor, Table, Text } from "@mantine/core";
import { generatePath, Link } from "react-router";
import type { WebhookHistory } from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import type { Period } from "../../../parts/charts/periods.ts";
import { LastError, WebhookHealthBadges } from "../../../parts/status/webhook-health.tsx";
import { Breakable } from "../../../parts/text/breakable.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { AttemptBars } from "./attempt-bars.tsx";
import type { LastDay } from "./last-day.ts";
import { Success } from "./success.tsx";

/** The webhooks, and the statistics of each. */
export interface WebhookRowsProps {
  webhooks: readonly Webhook[];
  lastDay: LastDay;
  /** Their attempts over the chosen period; undefined until they are read. */
  histories: ReadonlyMap<bigint, WebhookHistory> | undefined;
  period: Period;
  /** The other event types of their endpoints. */
  others: ReadonlyMap<bigint, readonly Webhook[]>;
}

/** Webhooks on a wide screen. */
export function WebhookTable({ webhooks, lastDay, histories, period, others }: WebhookRowsProps) {
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table layout="fixed" highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Webhook</Table.Th>
            <Table.Th w={138}>State</Table.Th>
            <Table.Th w={216}>Attempts, {period.label}</Table.Th>
            <Table.Th w={228}>Delivered, 24 hours</Table.Th>
            <Table.Th w={92}>Log</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {webhooks.map((webhook) => (
            <Table.Tr key={String(webhook.id)}>
              <Table.Td>
                <WebhookLink webhook={webhook} />
                <Text size="xs" c="dimmed" truncate>
                  {processName(webhook.webhookProcess)}
                  <OtherTypes of={webhook} others={others.get(webhook.id)} />
                  <ApplicationName webhook={webhook} />
                </Text>
                <LastError webhook={webhook} />
              </Table.Td>
              <Table.Td>
                <WebhookHealthBadges webhook={webhook} />
              </Table.Td>
              <Table.Td>
                <AttemptBars history={histories?.get(webhook.id)} period={period} />
              </Table.Td>
              <Table.Td>
                <Success of={webhook.id} lastDay={lastDay} />
              </Table.Td>
              <Table.Td>
                <DeliveriesLink webhook={webhook} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** A webhook's name or address, which leads to its page; below a name, the address. */
export function WebhookLink({ webhook }: { webhook: Webhook }) {
  return (
    <>
      <Address webhook={webhook} />
      {webhook.name !== undefined && (
        <Text size="xs" c="dimmed" lineClamp={1} title={webhook.url} style={{ overflowWrap: "anywhere" }}>
          {webhook.url}
        </Text>
      )}
    </>
  );
}

function Address({ webhook }: { webhook: Webhook }) {
  return (
    <Anchor
      component={Link}
      to={generatePath(PAGE_PATHS.webhook, { id: String(webhook.id) })}
      size="sm"
      fw={500}
      lineClamp={2}
      title={webhook.url}
      style={{ overflowWrap: "anywhere" }}
    >
      <Breakable text={webhook.name ?? webhook.url} />
    </Anchor>
  );
}

/** ` + 2 event types`: the other event types of a webhook's endpoint, with a way to them; nothing where there are none. */
export function OtherTypes({ of, others }: { of: Webhook; others: readonly Webhook[] | undefined }) {
  if (!others) return null;
  const names = others.map(({ webhookProcess }) => processName(webhookProcess)).join(", ");
  return (
    <>
      {" + "}
      <Anchor
        component={Link}
        to={`${PAGE_PATHS.webhooks}?${new URLSearchParams({ search: of.endpointId ?? "" })}`}
        inherit
        underline="always"
        title={`Same endpoint: ${names}`}
        aria-label={`${countOf(others.length, "event type", "event types")} of the same endpoint: ${names}`}
      >
        {countOf(others.length, "event type", "event types")}
      </Anchor>
    </>
  );
}

/** ` · Warehouse link`: the app that a webhook belongs to, after its event type; nothing where there is none. */
export function ApplicationName({ webhook }: { webhook: Webhook }) {
  const name = webhook.applicationName ?? webhook.application;
  return name === undefined ? null : <span title={`Installed app: ${name}`}> · {name}</span>;
}

/** Leads to a webhook's deliveries. */
export function DeliveriesLink({ webhook }: { webhook: Webhook }) {
  return (
    <Anchor
      component={Link}
      to={deliveriesOf(webhook.id)}
      size="sm"
      aria-label={`Deliveries of ${processName(webhook.webhookProcess)} to ${webhook.url}`}
    >
      Deliveries
    </Anchor>
  );
}

/** The path of the list of a webhook's deliveries. */
export function deliveriesOf(id: bigint): string {
  return `${PAGE_PATHS.deliveries}?${new URLSearchParams({ webhook: String(id) })}`;
}
