import { IncidentService } from "../../../../gen/webhook/v1/incident_pb.ts";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useLive } from "../../api/queries.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { countOf } from "../../parts/text/words.ts";
import { useCustomerFilter, useListedCustomer } from "../customers/chosen.tsx";
import { IncidentRows, REFRESH_MS } from "../incidents/incident-list.tsx";

/** The number of incidents that are shown. */
const SHOWN = 8;

/** What fails now: a row for each cause and host. */
export function Incidents({ overview }: { overview: Overview | undefined }) {
  const customer = useCustomerFilter();
  const incidents = useLive(
    IncidentService.method.listIncidents,
    { open: true, pageSize: SHOWN, ...customer },
    REFRESH_MS,
  );
  return (
    <Section
      title="Incidents"
      actions={
        <>
          <Health overview={overview} />
          <PageLink to={listPage(PAGE_PATHS.incidents, customer)}>Past incidents</PageLink>
        </>
      }
    >
      <Refreshed query={incidents} loading={<Loading lines={3} />}>
        {({ incidents: open, nextPageToken }) => (
          <>
            {open.length === 0 ? <Dimmed>No webhook fails.</Dimmed> : <IncidentRows incidents={open} />}
            {nextPageToken !== "" && (
              <PageLink to={listPage(PAGE_PATHS.incidents, customer)}>All open incidents</PageLink>
            )}
          </>
        )}
      </Refreshed>
    </Section>
  );
}

/** How many webhooks fail and are degraded, leading to the lists of them. */
function Health({ overview }: { overview: Overview | undefined }) {
  const filter = useListedCustomer();
  if (!overview) return null;
  return (["failing", "degraded"] as const).map((health) => {
    const count = Number(overview[`${health}Webhooks`]);
    if (count === 0) return null;
    return (
      <PageLink key={health} to={listPage(PAGE_PATHS.webhooks, { health, ...filter })}>
        {countOf(count, "webhook", "webhooks")} {health}
      </PageLink>
    );
  });
}
