import { Group, Text } from "@mantine/core";
import { IconArrowDown, IconArrowUp } from "@tabler/icons-react";
import { generatePath } from "react-router";
import type { Incident, IncidentWebhook } from "../../../../gen/webhook/v1/incident_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Dimmed, PageLink } from "../../parts/inline.tsx";
import { type Column, Listing } from "../../parts/listing.tsx";
import { Breakable } from "../../parts/text/breakable.tsx";
import { capitalized, countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";

/** The interval between refreshes, in milliseconds. */
export const REFRESH_MS = 10_000;
/** The service counts at least that many deliveries of a webhook. */
const COUNTED = 10_000n;

/** The page of an incident. */
export const incidentPage = (id: string) => generatePath(PAGE_PATHS.incident, { id });

/** `Connection refused: shop.example`; without the subject if the cause names it. */
export const incidentTitle = ({ cause, subject }: Incident) =>
  capitalized(cause?.summary.includes(subject) ? cause.summary : `${cause?.summary ?? ""}: ${subject}`);

/** `2,007`, or `10,000+` where not all were counted. */
export function countedOf(incident: Incident, of: "waiting" | "failed" | "recovered" | "customers"): string {
  const isPart =
    incident.measuredWebhooks < incident.webhooks || (of !== "customers" && incident[of] >= COUNTED);
  return `${incident[of].toLocaleString()}${isPart ? "+" : ""}`;
}

/** `12 webhooks`, or `3 of 12 webhooks` once some have recovered. */
export function webhooksInWords({ webhooks, failingWebhooks }: Incident): string {
  const all = countOf(Number(webhooks), "webhook", "webhooks");
  return failingWebhooks === webhooks || failingWebhooks === 0n
    ? all
    : `${failingWebhooks.toLocaleString()} of ${all}`;
}

/** What to do, as a sentence. */
export const remedyOf = ({ cause }: Incident) =>
  cause?.remedy ? `${capitalized(cause.remedy).replaceAll("'", "’")}.` : "";

/** The time of the next attempt: `in 3 min`, or `now` where it is due. */
export function NextAttempt({ of }: { of: Pick<Incident | IncidentWebhook, "nextAttempt" | "waiting"> }) {
  if (of.nextAttempt && Number(of.nextAttempt.seconds) * 1_000 <= Date.now()) return "now";
  return <Time value={of.nextAttempt} relative="short" otherwise={of.waiting > 0n ? "not planned" : "–"} />;
}

/** The failed attempts of the last five minutes, and whether there are more or fewer than in the five before. */
export function Trend({
  incident: { failedAttempts: now, failedAttemptsBefore: before },
}: {
  incident: Incident;
}) {
  const Icon = now > before ? IconArrowUp : IconArrowDown;
  const words = `${now.toLocaleString()} failed attempts in 5 minutes, ${before.toLocaleString()} in the 5 before`;
  return (
    <Text span inherit className="figures" title={words} style={{ whiteSpace: "nowrap" }}>
      {now !== before && <Icon size={12} role="img" aria-label={now > before ? "more" : "fewer"} />}{" "}
      {now.toLocaleString()} in 5 min
    </Text>
  );
}

function Cause({ incident }: { incident: Incident }) {
  return (
    <>
      <PageLink to={incidentPage(incident.id)} fw={500} style={{ overflowWrap: "anywhere" }}>
        <Breakable text={incidentTitle(incident)} />
      </PageLink>
      {!incident.ended && <Dimmed size="xs">{remedyOf(incident)}</Dimmed>}
    </>
  );
}

const OPEN: readonly Column<Incident>[] = [
  { name: "What fails, and what to do", cell: (incident) => <Cause incident={incident} /> },
  { name: "Since", cell: ({ since }) => <Time value={since} relative="short" /> },
  {
    name: "Webhooks",
    ta: "right",
    cell: (each) => <PageLink to={incidentPage(each.id)}>{each.failingWebhooks.toLocaleString()}</PageLink>,
  },
  { name: "Customers", ta: "right", cell: (each) => countedOf(each, "customers") },
  { name: "Waiting", ta: "right", cell: (each) => countedOf(each, "waiting") },
  { name: "Next attempt", cell: (each) => <NextAttempt of={each} /> },
  { name: "Failed attempts", cell: (each) => <Trend incident={each} /> },
];

const PAST: readonly Column<Incident>[] = [
  { name: "What failed", cell: (incident) => <Cause incident={incident} /> },
  { name: "Began", cell: ({ since }) => <Time value={since} relative="short" /> },
  { name: "Ended", cell: ({ ended }) => <Time value={ended} relative="short" /> },
  { name: "Webhooks", ta: "right", cell: ({ webhooks }) => webhooks.toLocaleString() },
  { name: "Customers", ta: "right", cell: (each) => countedOf(each, "customers") },
  { name: "Recovered", ta: "right", cell: (each) => countedOf(each, "recovered") },
  { name: "Failed", ta: "right", cell: (each) => countedOf(each, "failed") },
];

/** An item on a card: the first column, and the others with their names. */
export function CardOf<T>({ columns: [first, ...others], item }: { columns: readonly Column<T>[]; item: T }) {
  return (
    <>
      <div>{first?.cell(item)}</div>
      <Group gap="md" fz="sm" className="figures" style={{ rowGap: 2 }}>
        {others.map(({ name, cell }) => (
          <span key={name}>
            <Text span inherit c="dimmed">
              {name}
            </Text>{" "}
            {cell(item)}
          </span>
        ))}
      </Group>
    </>
  );
}

/** Open or past incidents, a row for each. */
export function IncidentRows({
  incidents,
  isPast = false,
}: {
  incidents: readonly Incident[];
  isPast?: boolean;
}) {
  const columns = isPast ? PAST : OPEN;
  return (
    <Listing
      aria-label={isPast ? "Past incidents" : "Open incidents"}
      items={incidents}
      cardsBelow="lg"
      columns={columns}
      card={(incident) => <CardOf columns={columns} item={incident} />}
    />
  );
}
