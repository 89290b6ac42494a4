import { Anchor, Table, Text } from "@mantine/core";
import { generatePath, Link } from "react-router";
import type { WebhookHistory } from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import type { Period } from "../../../parts/charts/periods.ts";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { LastError, WebhookHealthBadges } from "../../../parts/status/webhook-health.tsx";
import { AddressInOneLine, Breakable } from "../../../parts/text/breakable.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { addressInFull, addressParts } from "../../../parts/text/webhook-title.ts";
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

/** Webhooks on a wide screen, of two lines each while they are healthy. */
export function WebhookTable({ webhooks, lastDay, histories, period, others }: WebhookRowsProps) {
  const narrow = useBelow("lg");
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table layout="fixed" verticalSpacing={3} highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Webhook</Table.Th>
            <Table.Th w={130}>State</Table.Th>
            <Table.Th w={narrow ? 182 : 284}>Attempts, {period.label}</Table.Th>
            <Table.Th w={226}>Deliveries, 24 hours</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {webhooks.map((webhook) => (
            <Table.Tr key={String(webhook.id)}>
              <Table.Td>
                <WebhookLink webhook={webhook} inOneLine />
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
                <AttemptBars history={histories?.get(webhook.id)} period={period} withLatency={!narrow} />
              </Table.Td>
              <Table.Td>
                <Success of={webhook} lastDay={lastDay} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** The webhook, and whether a long address is cut instead of wrapped. */
interface WebhookLinkProps {
  webhook: Webhook;
  inOneLine?: boolean;
}

/** A webhook's name or address, which leads to its page; below a name, the address. */
export function WebhookLink({ webhook, inOneLine = false }: WebhookLinkProps) {
  const { name, url } = webhook;
  const cut = inOneLine ? ({ truncate: true } as const) : { lineClamp: 2 };
  return (
    <>
      <Anchor
        component={Link}
        to={generatePath(PAGE_PATHS.webhook, { id: String(webhook.id) })}
        size="sm"
        fw={550}
        display="block"
        {...cut}
        title={url}
        // Read without a gap where the address is cut.
        aria-label={name ?? addressInFull(url)}
        style={{ overflowWrap: "anywhere" }}
      >
        {name ?? (inOneLine ? <AddressInOneLine url={url} hasLinkedHost /> : <Address url={url} />)}
      </Anchor>
      {name !== undefined && (
        <Text size="xs" c="dimmed" truncate title={url}>
          <AddressInOneLine url={url} />
        </Text>
      )}
    </>
  );
}

/** Host and path of an address. Every webhook's URL begins with `https://`, so the scheme is omitted. */
function Address({ url }: { url: string }) {
  const [host, path] = addressParts(url);
  return (
    <>
      <Breakable text={host} />
      <Text span inherit fw={400} c="dimmed">
        <Breakable text={path} />
      </Text>
    </>
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
