import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { Navigate, useLocation, useNavigationType, useSearchParams } from "react-router";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { PageLink } from "../../parts/inline.tsx";
import { useBelow } from "../../parts/listing.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { CustomerFilter } from "../customers/filter.tsx";
import { OpenReplays } from "../replays/replay-card.tsx";
import { DeliveryDetails } from "./delivery.tsx";
import type { Opening } from "./delivery-list.tsx";
import { DeliveryPages } from "./delivery-pages.tsx";
import { FilterBar } from "./filter-bar.tsx";
import { FILTER_NAMES, type Filters, NO_FILTERS, readFilter } from "./filters.ts";

/** The list of deliveries, newest first, with filters in the page's URL. */
export default function DeliveriesPage() {
  const [filters, change] = useUrlFilters(FILTER_NAMES);
  const { page, open, ...filterOnly } = filters;
  const asked = JSON.stringify(filterOnly);
  const chosenAt = useChosenAt(asked);
  const filter = useMemo(() => readFilter(JSON.parse(asked) as Filters, chosenAt), [asked, chosenAt]);

  const { search } = useLocation();
  const narrow = useBelow("desk");

  /** Changes the filter and returns to the first page. */
  function restrict(changes: Partial<Filters>, options?: { replace?: boolean }) {
    change({ page: "", open: "", ...changes }, options);
  }
  const clear = () => restrict(NO_FILTERS);

  // Version 0.2.0 searched for ids only.
  const [parameters] = useSearchParams();
  const id = parameters.get("id");
  if (id !== null) return <Navigate to={{ search: `?${new URLSearchParams({ search: id })}` }} replace />;
  // There is no room for it beside the list.
  if (open && narrow) return <DeliveryDetails id={open} />;
  const opening: Opening | undefined = narrow
    ? undefined
    : {
        id: open,
        to: (each) => {
          const beside = new URLSearchParams(search);
          beside.set("open", each);
          return `?${beside}`;
        },
        onOpen: (each) => change({ open: each }, { replace: true }),
      };

  return (
    <>
      <PageTitle
        title="Deliveries"
        compact
        actions={
          <>
            <CustomerFilter />
            <PageLink to={PAGE_PATHS.replays}>Replays</PageLink>
          </>
        }
      />
      <FilterBar filters={filters} onChange={restrict} />
      <OpenReplays />
      <DeliveryPages
        filter={filter}
        token={page}
        opening={opening}
        onGo={(token, options) => change({ page: token }, { toTop: true, ...options })}
        onClear={asked === NOTHING ? undefined : clear}
      />
    </>
  );
}

/**
 * The time at which the filter was chosen, in milliseconds: the end of "the last hour". The time stays for all pages of the list,
 * or no two would fit together, and for Back, which then finds the list in the cache and scrolls to where it was left.
 */
function useChosenAt(filter: string): number {
  const queries = useQueryClient();
  const isBack = useNavigationType() === "POP";
  const read = () => ({ filter, at: (isBack && queries.getQueryData<number>(keyOf(filter))) || Date.now() });
  const [chosen, setChosen] = useState(read);
  if (chosen.filter !== filter) setChosen(read);
  useEffect(() => () => void queries.setQueryData(keyOf(chosen.filter), chosen.at), [queries, chosen]);
  return chosen.at;
}

const keyOf = (filter: string) => ["filter chosen at", filter];

const { page: _page, open: _open, ...noFilter } = NO_FILTERS;
const NOTHING = JSON.stringify(noFilter);
