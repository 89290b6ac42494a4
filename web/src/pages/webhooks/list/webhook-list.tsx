import { Anchor, Card, Group, Pagination, Stack, Table, Text } from "@mantine/core";
import { generatePath, Link } from "react-router";
import type { WebhookHistory } from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { Failure } from "../../../parts/failure.tsx";
import { useBelow } from "../../../parts/listing.tsx";
import type { Period } from "../../../parts/periods.tsx";
import { LastError, WebhookHealthBadges } from "../../../parts/states.tsx";
import { AddressInOneLine, Breakable } from "../../../parts/text/breakable.tsx";
import { addressInFull, addressParts, countOf } from "../../../parts/text/words.ts";
import { Time } from "../../../parts/time.tsx";
import { AttemptBars, type LastDay, Success, useHistories, useLastDay } from "./figures.tsx";

/** The number of items per page. */
const PAGE_SIZE = 50;

/** Keeps the focus on a button that leads no further; a disabled one would lose it. */
const LEADS_NO_FURTHER = {
  disabled: false,
  "data-disabled": true,
  "aria-disabled": true,
  onClick: undefined,
};

/** The found webhooks, and the page that is shown. */
export interface FoundWebhooksProps {
  /** At least one. */
  webhooks: readonly Webhook[];
  /** The other event types of their endpoints. */
  others: ReadonlyMap<bigint, readonly Webhook[]>;
  /** The period of the charts. */
  period: Period;
  /** Page number, starting at 1; values outside the range are clamped. */
  page: number;
  onPage: (page: number) => void;
}

/** A page of webhooks, with links to the others. */
export function FoundWebhooks({ webhooks, others, period, page, onPage }: FoundWebhooksProps) {
  const List = useBelow("md") ? WebhookCards : WebhookTable;
  const pages = Math.ceil(webhooks.length / PAGE_SIZE);
  const shown = Math.min(Math.max(1, Math.trunc(page)), pages);
  const from = (shown - 1) * PAGE_SIZE;
  const to = Math.min(from + PAGE_SIZE, webhooks.length);
  const onPageNow = webhooks.slice(from, to);
  const lastDay = useLastDay(onPageNow.map(({ id }) => id));
  const total = countOf(webhooks.length, "webhook", "webhooks");

  const histories = useHistories(onPageNow, period);

  return (
    <>
      {lastDay.error !== null && (
        <Failure
          error={lastDay.error}
          title="Could not load the statistics"
          onRetry={lastDay.retry}
          my="sm"
        />
      )}
      <List webhooks={onPageNow} others={others} lastDay={lastDay} histories={histories} period={period} />
      <Group justify="space-between" gap="md" py="md">
        <Text size="sm" c="dimmed" role="status">
          {pages === 1 ? total : `${(from + 1).toLocaleString()}–${to.toLocaleString()} of ${total}`}
        </Text>
        {pages > 1 && (
          <Pagination
            total={pages}
            value={shown}
            onChange={onPage}
            size="sm"
            getControlProps={(control) => ({
              "aria-label": `Go to the ${control} page`,
              ...(shown === (control === "next" || control === "last" ? pages : 1) ? LEADS_NO_FURTHER : {}),
            })}
            getItemProps={(item) => ({ "aria-label": `Page ${item}` })}
          />
        )}
      </Group>
    </>
  );
}

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

/** Webhooks on a narrow screen. */
export function WebhookCards({ webhooks, lastDay, histories, period, others }: WebhookRowsProps) {
  return (
    <Stack gap="sm" component="ul" p={0} m={0} style={{ listStyle: "none" }}>
      {webhooks.map((webhook) => (
        <Card key={String(webhook.id)} component="li" withBorder padding="md">
          <Stack gap="xs">
            <Group justify="space-between" gap="xs" wrap="nowrap" align="flex-start">
              <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
                {processName(webhook.webhookProcess)}
                <Text span fw={400} c="dimmed">
                  <OtherTypes of={webhook} others={others.get(webhook.id)} />
                  <ApplicationName webhook={webhook} />
                </Text>
              </Text>
              <WebhookHealthBadges webhook={webhook} />
            </Group>
            <WebhookLink webhook={webhook} />
            <LastError webhook={webhook} />
            <Group justify="space-between" gap="xs" align="flex-end">
              <Success of={webhook} lastDay={lastDay} />
              <AttemptBars history={histories?.get(webhook.id)} period={period} withLatency />
            </Group>
            <Text size="xs" c="dimmed">
              Created <Time value={webhook.created} />
            </Text>
          </Stack>
        </Card>
      ))}
    </Stack>
  );
}
