import { useInfiniteQuery } from "@connectrpc/connect-query";
import { Stack } from "@mantine/core";
import { IconCheck } from "@tabler/icons-react";
import { IncidentService } from "../../../../gen/webhook/v1/incident_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Loading } from "../../parts/failure.tsx";
import { Dimmed, PageLink } from "../../parts/inline.tsx";
import { Empty, Pages } from "../../parts/lists.tsx";
import { PageTitle, Section } from "../../parts/page.tsx";
import { useCustomerFilter } from "../customers/chosen.tsx";
import { CustomerFilter } from "../customers/filter.tsx";
import { IncidentRows, REFRESH_MS } from "./incident-list.tsx";

/** What fails and what has failed, by cause and host. */
export default function IncidentsPage() {
  return (
    <>
      <PageTitle
        title="Incidents"
        description="What fails, by cause and host, whom it concerns, and what to do"
        actions={<CustomerFilter />}
      />
      <Stack gap="lg">
        <Section title="Open">
          <Incidents open />
        </Section>
        <Section title="Past">
          <Incidents open={false} />
        </Section>
      </Stack>
    </>
  );
}

function Incidents({ open }: { open: boolean }) {
  const list = useInfiniteQuery(
    IncidentService.method.listIncidents,
    { open, pageToken: "", ...useCustomerFilter() },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: REFRESH_MS,
    },
  );
  return (
    <Pages
      list={list}
      items={list.data?.pages.flatMap(({ incidents }) => incidents)}
      of={["incident", "incidents"]}
      failed="Could not load the incidents"
      loading={<Loading lines={4} />}
      empty={
        open ? (
          <Empty
            title="No webhook fails"
            icon={<IconCheck />}
            action={<PageLink to={PAGE_PATHS.webhooks}>All webhooks</PageLink>}
          >
            A webhook whose attempts fail appears here, with the others that fail for the same reason.
          </Empty>
        ) : (
          <Dimmed>None yet. An incident that has ended is kept here as long as its deliveries.</Dimmed>
        )
      }
    >
      {(incidents) => <IncidentRows incidents={incidents} isPast={!open} />}
    </Pages>
  );
}
