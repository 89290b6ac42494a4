import { Button, Code } from "@mantine/core";
import { IconFilterOff } from "@tabler/icons-react";
import { useMemo } from "react";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Empty } from "../../parts/lists/empty.tsx";
import { useUrlFilters } from "../../parts/lists/use-url-filters.ts";
import { Failure } from "../../parts/status/failure.tsx";
import { Loading } from "../../parts/status/loading.tsx";
import { FilterBar } from "./filters/filter-bar.tsx";
import { FILTER_NAMES, type Filters, NO_FILTERS, readFilter } from "./filters/filters.ts";
import { useIdSearch } from "./filters/use-id-search.ts";
import { DeliveryPages } from "./list/delivery-pages.tsx";

/** What became of each delivery: a list, newest first, with filters that are in the address. */
export default function DeliveriesPage() {
  const [filters, change] = useUrlFilters(FILTER_NAMES);
  const search = useIdSearch(filters.id);
  // "The last hour" is that before the filter was chosen: its beginning stays, or no two pages would fit together.
  const { page, ...filterOnly } = filters;
  const asked = JSON.stringify(filterOnly);
  const filter = useMemo(() => readFilter(JSON.parse(asked) as Filters, Date.now()), [asked]);

  /** Another filter begins with its first page. */
  function restrict(changes: Partial<Filters>, options?: { replace?: boolean }) {
    change({ page: "", ...changes }, options);
  }
  const clear = () => restrict(NO_FILTERS);

  return (
    <>
      <PageTitle
        title="Deliveries"
        description="Each event for each webhook it was queued for, newest first."
      />
      <FilterBar filters={filters} onChange={restrict} />
      {search.is === "failed" ? (
        <Failure error={search.error} onRetry={search.retry} />
      ) : search.is === "looking" ? (
        <Loading />
      ) : search.is === "no id" ? (
        <Empty
          title="This is not an id"
          icon={<IconFilterOff />}
          action={
            <Button variant="default" onClick={clear}>
              Clear the filters
            </Button>
          }
        >
          Paste the whole id of a delivery or an event, such as{" "}
          <Code>019c7f2e-5b1a-7c3d-8e4f-0123456789ab</Code>. Receivers see a delivery’s id as the header{" "}
          <Code>X-Service-Webhook-Id</Code>.
        </Empty>
      ) : (
        <DeliveryPages
          filter={filter}
          id={search.is === "found" ? search.filter : undefined}
          token={page}
          onGo={(token, options) => change({ page: token }, options)}
          onClear={asked === NOTHING ? undefined : clear}
        />
      )}
    </>
  );
}

const { page: _none, ...noFilter } = NO_FILTERS;
const NOTHING = JSON.stringify(noFilter);
