import { type Timestamp, timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { useInfiniteQuery } from "@connectrpc/connect-query";
import { Stack, Text } from "@mantine/core";
import { useParams } from "react-router";
import { DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import {
  type GetIncidentResponse,
  type Incident,
  IncidentService,
  type IncidentWebhook,
} from "../../../../gen/webhook/v1/incident_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { DialogButton } from "../../parts/dialogs.tsx";
import { Dimmed, listPage, PageLink, webhookPage } from "../../parts/inline.tsx";
import { type Column, Listing } from "../../parts/listing.tsx";
import { ItemStatus, Pages } from "../../parts/lists.tsx";
import { BackLink, Facts, PageTitle, Section } from "../../parts/page.tsx";
import { Breakable } from "../../parts/text/breakable.tsx";
import { durationInWords, webhookTitle } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { CustomerLink } from "../customers/chosen.tsx";
import type { DeliveryFilter } from "../deliveries/filters.ts";
import { SendFilteredDialog } from "../deliveries/send-filtered.tsx";
import {
  CardOf,
  countedOf,
  incidentTitle,
  NextAttempt,
  REFRESH_MS,
  remedyOf,
  Trend,
  webhooksInWords,
} from "./incident-list.tsx";

/** The number of webhooks per page. */
const PAGE_SIZE = 50;

/** The page of an incident. */
export default function IncidentPage() {
  const { id = "" } = useParams();
  const query = useInfiniteQuery(
    IncidentService.method.getIncident,
    { incidentId: id, pageSize: PAGE_SIZE, pageToken: "" },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: REFRESH_MS,
    },
  );
  const incident = query.data?.pages[0]?.incident;
  const webhooks = query.data?.pages.flatMap((page: GetIncidentResponse) => page.webhooks) ?? [];
  return (
    <>
      <BackLink to={PAGE_PATHS.incidents}>All incidents</BackLink>
      {incident ? (
        <>
          <PageTitle
            title={incidentTitle(incident)}
            description={<Duration incident={incident} />}
            actions={<ReplayFailed incident={incident} webhooks={webhooks} />}
          />
          <Stack gap="lg">
            <Section
              title={incident.ended ? "What it was" : remedyOf(incident) ? "What to do" : "What it is"}
            >
              <Summary incident={incident} />
            </Section>
            <Section title="Webhooks">
              <Pages
                list={query}
                items={webhooks}
                of={["webhook", "webhooks"]}
                failed="Could not load the webhooks"
                loading={null}
                empty={<Dimmed>Its webhooks are deleted.</Dimmed>}
              >
                {(shown) => (
                  <Listing
                    aria-label="Webhooks of the incident"
                    items={shown}
                    keyOf={({ webhookId }) => String(webhookId)}
                    cardsBelow="lg"
                    columns={COLUMNS}
                    card={(webhook) => <CardOf columns={COLUMNS} item={webhook} />}
                  />
                )}
              </Pages>
            </Section>
          </Stack>
        </>
      ) : (
        <>
          <PageTitle title="Incident" />
          <ItemStatus query={query} notFound="INCIDENT_NOT_FOUND" noun="incident">
            Past incidents are deleted after the retention period.
          </ItemStatus>
        </>
      )}
    </>
  );
}

function Duration({ incident: { since, ended } }: { incident: Incident }) {
  return since && ended ? (
    <>
      Ended <Time value={ended} relative />, after {durationInWords(timestampMs(ended) - timestampMs(since))}
    </>
  ) : (
    <>
      Open since <Time value={since} />
    </>
  );
}

function Summary({ incident }: { incident: Incident }) {
  const isOpen = !incident.ended;
  return (
    <>
      {remedyOf(incident) && <Text fw={500}>{remedyOf(incident)}</Text>}
      <Facts
        inColumns
        facts={[
          ["Webhooks", `${webhooksInWords(incident)}${isOpen ? " failing" : ""}`],
          ["Customers", countedOf(incident, "customers")],
          isOpen && ["Next attempt", <NextAttempt key="next" of={incident} />],
          isOpen && ["Waiting", countedOf(incident, "waiting")],
          isOpen && ["Failed attempts", <Trend key="trend" incident={incident} />],
          ["Failed finally", countedOf(incident, "failed")],
          ["Recovered", countedOf(incident, "recovered")],
          ["Error", incident.lastError],
        ]}
      />
    </>
  );
}

/** What fails in an incident may have been created before it: its first attempts take until then. In milliseconds. */
const BEFORE_MS = 3_600_000;
const startOf = (since: Timestamp | undefined) => (since ? timestampMs(since) - BEFORE_MS : 0);

/** The failed deliveries since a webhook began to fail. */
const failedOf = ({ webhookId, since }: IncidentWebhook) =>
  listPage(PAGE_PATHS.deliveries, {
    state: "failed",
    webhook: String(webhookId),
    from: new Date(startOf(since)).toISOString(),
  });

const COLUMNS: readonly Column<IncidentWebhook>[] = [
  {
    name: "Webhook",
    cell: (webhook) => (
      <>
        <PageLink
          to={webhookPage(webhook.webhookId)}
          title={webhook.url}
          style={{ overflowWrap: "anywhere" }}
        >
          <Breakable text={webhookTitle(webhook)} />
        </PageLink>
        <Dimmed size="xs">{webhook.webhookProcess}</Dimmed>
      </>
    ),
  },
  {
    name: "Customer",
    visibleFrom: "lg",
    cell: ({ customer }) => (customer === undefined ? "–" : <CustomerLink id={customer} />),
  },
  { name: "Since", cell: ({ since }) => <Time value={since} relative="short" /> },
  { name: "Recovered", cell: ({ ended }) => <Time value={ended} relative="short" otherwise="Not yet" /> },
  { name: "Waiting", ta: "right", cell: ({ waiting }) => waiting.toLocaleString() },
  { name: "Next attempt", cell: (webhook) => <NextAttempt of={webhook} /> },
  { name: "Delivered since", ta: "right", cell: ({ recovered }) => recovered.toLocaleString() },
  {
    name: "Failed",
    ta: "right",
    cell: (webhook) => <PageLink to={failedOf(webhook)}>{webhook.failed.toLocaleString()}</PageLink>,
  },
];

/** A host with or without a port, which a search for deliveries finds; a part of the service is none. */
const HOST = /^[^\s]+$/;

/** Sends again what has failed finally: of the webhook, or of all at the host. Nothing where neither selects it. */
function ReplayFailed({ incident, webhooks }: { incident: Incident; webhooks: readonly IncidentWebhook[] }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { subject, since, failed, cause } = incident;
  const [only, other] = webhooks;
  const ofHost = HOST.test(subject) && cause?.code !== "token_endpoint" ? { search: subject } : undefined;
  const which = only && !other ? { webhookId: only.webhookId } : ofHost;
  if (!mayWrite || failed === 0n || !which) return null;
  const from = timestampFromMs(startOf(since));
  const filter: DeliveryFilter = { states: [DeliveryState.FAILED], ...which, from };
  return (
    <DialogButton dialog={(dialog) => <SendFilteredDialog {...dialog} filter={filter} />}>
      Replay {countedOf(incident, "failed")} failed…
    </DialogButton>
  );
}
