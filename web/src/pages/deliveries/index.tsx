import { Anchor } from "@mantine/core";
import { useMemo } from "react";
import { Link, Navigate, useSearchParams } from "react-router";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { useUrlFilters } from "../../parts/lists/use-url-filters.ts";
import { OpenReplays } from "../replays/open-replays.tsx";
import { FilterBar } from "./filters/filter-bar.tsx";
import { FILTER_NAMES, type Filters, NO_FILTERS, readFilter } from "./filters/filters.ts";
import { DeliveryPages } from "./list/delivery-pages.tsx";

/** The list of deliveries, newest first, with filters in the page's URL. */
export default function DeliveriesPage() {
  const [filters, change] = useUrlFilters(FILTER_NAMES);
  // "The last hour" is that before the filter was chosen: its beginning stays, or no two pages would fit together.
  const { page, ...filterOnly } = filters;
  const asked = JSON.stringify(filterOnly);
  const filter = useMemo(() => readFilter(JSON.parse(asked) as Filters, Date.now()), [asked]);

  /** Changes the filter and returns to the first page. */
  function restrict(changes: Partial<Filters>, options?: { replace?: boolean }) {
    change({ page: "", ...changes }, options);
  }
  const clear = () => restrict(NO_FILTERS);

  // Version 0.2.0 searched for ids only.
  const [parameters] = useSearchParams();
  const id = parameters.get("id");
  if (id !== null) return <Navigate to={{ search: `?${new URLSearchParams({ search: id })}` }} replace />;

  return (
    <>
      <PageTitle
        title="Deliveries"
        compact
        actions={
          <Anchor component={Link} to={PAGE_PATHS.replays} size="sm">
            Replays
          </Anchor>
        }
      />
      <FilterBar filters={filters} onChange={restrict} />
      <OpenReplays />
      <DeliveryPages
        filter={filter}
        token={page}
        onGo={(token, options) => change({ page: token }, { toTop: true, ...options })}
        onClear={asked === NOTHING ? undefined : clear}
      />
    </>
  );
}

const { page: _none, ...noFilter } = NO_FILTERS;
const NOTHING = JSON.stringify(noFilter);
