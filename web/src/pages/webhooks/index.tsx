import { useInfiniteQuery } from "@connectrpc/connect-query";
import { Button } from "@mantine/core";
import { IconPlus, IconWebhook } from "@tabler/icons-react";
import { keepPreviousData } from "@tanstack/react-query";
import { Link } from "react-router";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { Loading } from "../../parts/failure.tsx";
import { Empty, NothingFound, Pages } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { PeriodSelect, periodOf } from "../../parts/periods.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { ALL_CUSTOMERS, useCustomerFilter, webhooksOf } from "../customers/chosen.tsx";
import { CustomerFilter } from "../customers/filter.tsx";
import { FILTER_NAMES, ListFilters, NO_FILTERS, searchOf } from "./list/filters.tsx";
import { WebhookTable } from "./list/webhook-list.tsx";

/** Health changes by itself. */
const REFRESH_MS = 30_000;
/** The number of items per page. */
const PAGE_SIZE = 50;
/** The maximum number of webhooks that the service counts. */
const MAX_COUNTED = 10_000;

/** The registrations: searched by the service, looked at, and made. */
export default function WebhooksPage() {
  const [filters, change] = useUrlFilters(FILTER_NAMES);
  const chosen = useCustomerFilter();
  const list = useInfiniteQuery(
    WebhookService.method.searchWebhooks,
    { ...searchOf(filters), ...webhooksOf(chosen), pageSize: PAGE_SIZE, pageToken: "" },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: REFRESH_MS,
      placeholderData: keepPreviousData,
    },
  );
  const pages = list.data?.pages ?? [];
  const found = pages.at(-1)?.found ?? 0;
  const mayWrite = useMay("Write_Administrative_Data");
  const isFiltered = Object.keys(NO_FILTERS).some((name) => filters[name as keyof typeof NO_FILTERS] !== "");

  return (
    <>
      <PageTitle
        title="Webhooks"
        compact
        // Always in this place: a button that moved once the list is read could be missed.
        actions={
          <>
            <CustomerFilter placeholder="Without a customer" also={ALL_CUSTOMERS} />
            <PeriodSelect
              period={periodOf(filters.period)}
              onChange={({ value }) =>
                change({ period: value === periodOf("").value ? "" : value }, { replace: true })
              }
            />
            {mayWrite && (
              <Button component={Link} to={PAGE_PATHS.newWebhook} leftSection={<IconPlus size={16} />}>
                New webhook
              </Button>
            )}
          </>
        }
      />
      {(isFiltered || found > 0) && (
        <ListFilters webhooks={pages.flatMap(({ webhooks }) => webhooks)} filters={filters} change={change} />
      )}
      <Pages
        list={list}
        items={list.data && pages.flatMap(({ webhooks }) => webhooks)}
        total={found < MAX_COUNTED ? found.toLocaleString() : `${found.toLocaleString()} or more`}
        of={["webhook", "webhooks"]}
        failed="Could not load the webhooks"
        loading={<Loading lines={8} height={40} />}
        empty={
          isFiltered ? (
            <NothingFound of="webhook" onClear={() => change(NO_FILTERS)}>
              None of the webhooks matches these filters.
            </NothingFound>
          ) : (
            <Empty
              title="No webhooks yet"
              icon={<IconWebhook />}
              action={
                mayWrite &&
                !chosen.customer && (
                  <Button component={Link} to={PAGE_PATHS.newWebhook}>
                    Register a webhook
                  </Button>
                )
              }
            >
              {chosen.customer !== undefined
                ? "Only API keys of the customer can register its webhooks."
                : mayWrite
                  ? "Register an HTTPS endpoint for one or several event types. It then receives every event of these types."
                  : "A key with Write_Administrative_Data can register the first one."}
            </Empty>
          )
        }
      >
        {() => (
          <WebhookTable
            pages={pages.map(({ webhooks }) => webhooks)}
            endpoints={pages.flatMap(({ endpoints }) => endpoints)}
            period={periodOf(filters.period)}
          />
        )}
      </Pages>
    </>
  );
}
