import { Button } from "@mantine/core";
import { IconPlus, IconWebhook } from "@tabler/icons-react";
import { useMemo } from "react";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { isReachable, useAllPages } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { useUrlFilters } from "../../parts/filters.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { Empty, NothingFound } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { PeriodSelect, periodOf } from "../../parts/periods.tsx";
import { ALL_CUSTOMERS, CustomerFilter, useCustomerFilter, webhooksOf } from "../customers/filter.tsx";
import { useLastDay } from "./list/figures.tsx";
import { FILTER_NAMES, findWebhooks, ListFilters, otherTypes } from "./list/filters.tsx";
import { FoundWebhooks } from "./list/webhook-list.tsx";
import { NewWebhook } from "./new-webhook.tsx";

/** Health changes by itself. */
const REFRESH_MS = 30_000;
const NO_WEBHOOKS: readonly Webhook[] = [];

/** The registrations: found, looked at, and made. */
export default function WebhooksPage() {
  const [filters, change] = useUrlFilters(FILTER_NAMES);
  const chosen = useCustomerFilter();
  const list = useAllPages(WebhookService.method.listWebhooks, webhooksOf(chosen), { refreshMs: REFRESH_MS });
  // Only this order needs the statistics of webhooks that are not shown.
  const lastDay = useLastDay(filters.sort === "failures" ? "all" : []);
  const mayWrite = useMay("Write_Administrative_Data");
  const webhooks = useMemo(() => list.data?.webhooks.filter(isReachable) ?? NO_WEBHOOKS, [list.data]);
  const found = useMemo(
    () => findWebhooks(webhooks, filters, lastDay.stats),
    [webhooks, filters, lastDay.stats],
  );

  const others = useMemo(() => otherTypes(webhooks), [webhooks]);

  const isMaking = mayWrite && filters.new !== "";
  // A link from another page opens the dialog too; closing it removes the parameter.
  useFocusBack(isMaking);

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
              <Button leftSection={<IconPlus size={16} />} onClick={() => change({ new: "1" })}>
                New webhook
              </Button>
            )}
          </>
        }
      />
      <Failure error={list.error} onRetry={list.refetch} my="sm" />
      {!list.data ? (
        list.isPending && <Loading lines={8} height={40} />
      ) : webhooks.length === 0 ? (
        <Empty title="No webhooks yet" icon={<IconWebhook />}>
          {chosen.customer !== undefined
            ? "Only API keys of the customer can register its webhooks."
            : mayWrite
              ? "Register an HTTPS endpoint for one or several event types. It then receives every event of these types."
              : "A key with Write_Administrative_Data can register the first one."}
        </Empty>
      ) : (
        <>
          <ListFilters webhooks={webhooks} filters={filters} change={change} />
          <Failure
            error={lastDay.error}
            title="Could not load the statistics"
            onRetry={lastDay.refetch}
            my="sm"
          />
          {found.length === 0 ? (
            <NothingFound
              of="webhook"
              onClear={() =>
                change({ search: "", process: "", health: "", state: "", application: "", page: "" })
              }
            >
              {webhooks.length === 1
                ? "1 webhook exists, but it does not match these filters."
                : `None of the ${webhooks.length.toLocaleString()} webhooks matches these filters.`}
            </NothingFound>
          ) : (
            <FoundWebhooks
              webhooks={found}
              others={others}
              period={periodOf(filters.period)}
              page={Number(filters.page) || 1}
              onPage={(page) => change({ page: page === 1 ? "" : String(page) }, { toTop: true })}
            />
          )}
        </>
      )}
      {mayWrite && <NewWebhook opened={isMaking} onClose={() => change({ new: "" }, { replace: true })} />}
    </>
  );
}
