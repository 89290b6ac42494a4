import { Box, Group, Text } from "@mantine/core";
import type { FoundEndpoint, Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useOwnCustomer } from "../../../api/session.tsx";
import { typeName } from "../../../api/type-names.ts";
import { Failure } from "../../../parts/failure.tsx";
import { Dimmed, listPage, PageLink, webhookPage } from "../../../parts/inline.tsx";
import { Listing } from "../../../parts/listing.tsx";
import type { Period } from "../../../parts/periods.tsx";
import { LastError, WebhookHealthBadges } from "../../../parts/states.tsx";
import { AddressInOneLine, Breakable } from "../../../parts/text/breakable.tsx";
import { addressInFull, addressParts, countOf } from "../../../parts/text/words.ts";
import { Time } from "../../../parts/time.tsx";
import { CustomerLink } from "../../customers/chosen.tsx";
import { AttemptBars, Success, useFigures } from "./figures.tsx";

/** Some webhooks. */
export interface WebhookTableProps {
  /** As they were read; at least one webhook. */
  pages: readonly (readonly Webhook[])[];
  /** The endpoints among them that have several event types. */
  endpoints: readonly FoundEndpoint[];
  /** The period of the charts. */
  period: Period;
}

/** Webhooks with their state and figures. */
export function WebhookTable({ pages, endpoints, period }: WebhookTableProps) {
  const figures = useFigures(pages, period);
  const typesOf = new Map(endpoints.map(({ id, processNames }) => [id, processNames]));
  const type = (webhook: Webhook) => (
    <>
      <OtherTypes of={webhook} types={typesOf.get(webhook.endpointId ?? "")} />
      <OwnerNames webhook={webhook} />
    </>
  );
  const success = (webhook: Webhook) => <Success of={webhook} figures={figures} />;

  return (
    <>
      <Failure
        error={figures.error}
        title="Could not load the statistics"
        onRetry={figures.refetch}
        my="sm"
      />
      <Listing
        items={pages.flat()}
        minWidth={840}
        isFixed
        space={3}
        columns={[
          { name: "Webhook", cell: (webhook) => <WebhookLink webhook={webhook} inOneLine /> },
          {
            name: "Event type",
            w: "14%",
            cell: (webhook) => (
              <Text size="sm" truncate title={typeName(webhook)}>
                {typeName(webhook)}
                {type(webhook)}
              </Text>
            ),
          },
          {
            name: "State",
            w: "22%",
            cell: (webhook) => (
              <Group gap={8} wrap="nowrap">
                <WebhookHealthBadges webhook={webhook} />
                <Box miw={0} className="one-line-error">
                  <LastError webhook={webhook} />
                </Box>
              </Group>
            ),
          },
          {
            name: `Attempts, ${period.label}`,
            w: 154,
            cell: ({ id }) => <AttemptBars history={figures.history(id)} period={period} />,
          },
          { name: "Deliveries, 24 hours", w: 212, cell: success },
        ]}
        cardsBelow="lg"
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
              {success(webhook)}
              <AttemptBars history={figures.history(webhook.id)} period={period} inFull />
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

/** A webhook's name or address, which leads to its page; beside or below a name, the address. */
function WebhookLink({ webhook, inOneLine = false }: WebhookLinkProps) {
  const { id, name, url } = webhook;
  const link = {
    to: webhookPage(id),
    fw: 550,
    title: url,
    // Read without a gap where the address is cut.
    "aria-label": name ?? addressInFull(url),
  };
  if (!inOneLine) {
    return (
      <>
        <PageLink {...link} display="block" lineClamp={2} style={{ overflowWrap: "anywhere" }}>
          {name ?? <Address url={url} />}
        </PageLink>
        {name !== undefined && (
          <Dimmed size="xs" truncate title={url}>
            <AddressInOneLine url={url} />
          </Dimmed>
        )}
      </>
    );
  }
  if (name === undefined) {
    return (
      <PageLink {...link} display="block" truncate>
        <AddressInOneLine url={url} hasLinkedHost />
      </PageLink>
    );
  }
  return (
    <Group gap={8} wrap="nowrap">
      <PageLink {...link} truncate maw="60%" flex="0 0 auto">
        {name}
      </PageLink>
      <Dimmed size="xs" truncate title={url} style={{ flex: 1 }}>
        <AddressInOneLine url={url} />
      </Dimmed>
    </Group>
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
function OtherTypes({ of, types = [] }: { of: Webhook; types: readonly string[] | undefined }) {
  const own = typeName(of);
  const others = types.filter((name) => name !== own);
  if (others.length === 0) return null;
  const names = others.join(", ");
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
        {others.length.toLocaleString()}
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
