import { Group, Pagination, Text } from "@mantine/core";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useOwnCustomer } from "../../../api/session.tsx";
import { typeName } from "../../../api/type-names.ts";
import { Failure } from "../../../parts/failure.tsx";
import { Dimmed, listPage, PageLink, webhookPage } from "../../../parts/inline.tsx";
import { Listing, useBelow } from "../../../parts/listing.tsx";
import type { Period } from "../../../parts/periods.tsx";
import { LastError, WebhookHealthBadges } from "../../../parts/states.tsx";
import { AddressInOneLine, Breakable } from "../../../parts/text/breakable.tsx";
import { addressInFull, addressParts, countOf } from "../../../parts/text/words.ts";
import { Time } from "../../../parts/time.tsx";
import { CustomerLink } from "../../customers/filter.tsx";
import { AttemptBars, Success, useHistories, useLastDay } from "./figures.tsx";

/** The number of items per page. */
const PAGE_SIZE = 50;

/** Keeps the focus on a button that leads no further; a disabled one would lose it. */
const LEADS_NO_FURTHER = {
  disabled: false,
  "data-disabled": true,
  "aria-disabled": true,
  onClick: undefined,
};

/** Some webhooks. */
export interface WebhookTableProps {
  /** At least one. */
  webhooks: readonly Webhook[];
  /** The other event types of their endpoints. */
  others: ReadonlyMap<bigint, readonly Webhook[]>;
  /** The period of the charts. */
  period: Period;
}

/** The found webhooks, and the page that is shown. */
export interface FoundWebhooksProps extends WebhookTableProps {
  /** Page number, starting at 1; values outside the range are clamped. */
  page: number;
  onPage: (page: number) => void;
}

/** A page of webhooks, with links to the others. */
export function FoundWebhooks({ webhooks, page, onPage, ...table }: FoundWebhooksProps) {
  const pages = Math.ceil(webhooks.length / PAGE_SIZE);
  const shown = Math.min(Math.max(1, Math.trunc(page)), pages);
  const from = (shown - 1) * PAGE_SIZE;
  const to = Math.min(from + PAGE_SIZE, webhooks.length);
  const total = countOf(webhooks.length, "webhook", "webhooks");
  return (
    <>
      <WebhookTable webhooks={webhooks.slice(from, to)} {...table} />
      <Group justify="space-between" gap="md" py="md">
        <Dimmed role="status">
          {pages === 1 ? total : `${(from + 1).toLocaleString()}–${to.toLocaleString()} of ${total}`}
        </Dimmed>
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

/** Webhooks with their state and figures. */
export function WebhookTable({ webhooks, others, period }: WebhookTableProps) {
  const narrow = useBelow("lg");
  const lastDay = useLastDay(webhooks.map(({ id }) => id));
  const histories = useHistories(webhooks, period);
  const type = (webhook: Webhook) => (
    <>
      <OtherTypes of={webhook} others={others.get(webhook.id)} />
      <OwnerNames webhook={webhook} />
    </>
  );
  const bars = ({ id }: Webhook, withLatency: boolean) => (
    <AttemptBars history={histories?.get(id)} period={period} withLatency={withLatency} />
  );

  return (
    <>
      <Failure
        error={lastDay.error}
        title="Could not load the statistics"
        onRetry={lastDay.refetch}
        my="sm"
      />
      <Listing
        items={webhooks}
        minWidth={640}
        layout="fixed"
        verticalSpacing={3}
        highlightOnHover
        columns={[
          {
            name: "Webhook",
            cell: (webhook) => (
              <>
                <WebhookLink webhook={webhook} inOneLine />
                <Dimmed size="xs" truncate>
                  {typeName(webhook)}
                  {type(webhook)}
                </Dimmed>
                <LastError webhook={webhook} />
              </>
            ),
          },
          { name: "State", w: 130, cell: (webhook) => <WebhookHealthBadges webhook={webhook} /> },
          {
            name: `Attempts, ${period.label}`,
            w: narrow ? 182 : 284,
            cell: (webhook) => bars(webhook, !narrow),
          },
          {
            name: "Deliveries, 24 hours",
            w: 226,
            cell: (webhook) => <Success of={webhook} lastDay={lastDay} />,
          },
        ]}
        cardsBelow="md"
        card={(webhook) => (
          <>
            <Group justify="space-between" gap="xs" wrap="nowrap" align="flex-start">
              <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
                {typeName(webhook)}
                <Text span fw={400} c="dimmed">
                  {type(webhook)}
                </Text>
              </Text>
              <WebhookHealthBadges webhook={webhook} />
            </Group>
            <WebhookLink webhook={webhook} />
            <LastError webhook={webhook} />
            <Group justify="space-between" gap="xs" align="flex-end">
              <Success of={webhook} lastDay={lastDay} />
              {bars(webhook, true)}
            </Group>
            <Dimmed size="xs">
              Created <Time value={webhook.created} />
            </Dimmed>
          </>
        )}
      />
    </>
  );
}

/** The webhook, and whether a long address is cut instead of wrapped. */
interface WebhookLinkProps {
  webhook: Webhook;
  inOneLine?: boolean;
}

/** A webhook's name or address, which leads to its page; below a name, the address. */
function WebhookLink({ webhook, inOneLine = false }: WebhookLinkProps) {
  const { name, url } = webhook;
  const cut = inOneLine ? ({ truncate: true } as const) : { lineClamp: 2 };
  return (
    <>
      <PageLink
        to={webhookPage(webhook.id)}
        fw={550}
        display="block"
        {...cut}
        title={url}
        // Read without a gap where the address is cut.
        aria-label={name ?? addressInFull(url)}
        style={{ overflowWrap: "anywhere" }}
      >
        {name ?? (inOneLine ? <AddressInOneLine url={url} hasLinkedHost /> : <Address url={url} />)}
      </PageLink>
      {name !== undefined && (
        <Dimmed size="xs" truncate title={url}>
          <AddressInOneLine url={url} />
        </Dimmed>
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
function OtherTypes({ of, others }: { of: Webhook; others: readonly Webhook[] | undefined }) {
  if (!others) return null;
  const names = others.map(typeName).join(", ");
  return (
    <>
      {" + "}
      <PageLink
        to={listPage(PAGE_PATHS.webhooks, { search: of.endpointId ?? "" })}
        inherit
        underline="always"
        title={`Same endpoint: ${names}`}
        aria-label={`${countOf(others.length, "event type", "event types")} of the same endpoint: ${names}`}
      >
        {countOf(others.length, "event type", "event types")}
      </PageLink>
    </>
  );
}

/** ` · Warehouse link · tenant-7`: the app and the customer that a webhook belongs to, after its event type; nothing where there are none. */
function OwnerNames({
  webhook: { application, applicationName = application, customer },
}: {
  webhook: Webhook;
}) {
  const own = useOwnCustomer();
  return (
    <>
      {applicationName !== undefined && (
        <span title={`Installed app: ${applicationName}`}> · {applicationName}</span>
      )}
      {customer !== undefined && customer !== own && (
        <>
          {" · "}
          <CustomerLink id={customer} inText />
        </>
      )}
    </>
  );
}
