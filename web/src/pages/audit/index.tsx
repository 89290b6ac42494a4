import { useInfiniteQuery } from "@connectrpc/connect-query";
import { IconHistory } from "@tabler/icons-react";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import { useAllPages } from "../../api/use-all-pages.ts";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Empty } from "../../parts/lists/empty.tsx";
import { LoadMore } from "../../parts/lists/load-more.tsx";
import { NothingFound } from "../../parts/lists/nothing-found.tsx";
import { useUrlFilters } from "../../parts/lists/use-url-filters.ts";
import { Failure } from "../../parts/status/failure.tsx";
import { Loading } from "../../parts/status/loading.tsx";
import { ACTIONS } from "./actions.ts";
import { AUDIT_FILTERS, AuditFilters, type AuditFilterValues } from "./audit-filters.tsx";
import { EntryList } from "./entry-list.tsx";

/** The number of items per page. */
const PAGE_SIZE = 50;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;
const NO_FILTERS: AuditFilterValues = { action: "", key: "", target: "" };

/** The audit log, newest first, with filters in the page's URL. */
export default function AuditPage() {
  const [filters, change] = useUrlFilters(AUDIT_FILTERS);
  const keys = useAllPages(ApiKeyService.method.listApiKeys, {});
  return (
    <>
      <PageTitle
        title="Audit log"
        description="Who changed webhooks, API keys and apps, when, and from where. Entries cannot be changed."
      />
      <AuditFilters filters={filters} keys={keys.data?.apiKeys ?? []} onChange={change} />
      <Entries filters={filters} onClear={() => change(NO_FILTERS)} />
    </>
  );
}

function Entries({ filters, onClear }: { filters: AuditFilterValues; onClear: () => void }) {
  const action = ACTIONS.find(({ name }) => name === filters.action)?.action;
  const list = useInfiniteQuery(
    AuditService.method.listAuditEntries,
    {
      pageSize: PAGE_SIZE,
      pageToken: "",
      actions: action === undefined ? [] : [action],
      ...(filters.key ? { apiKeyId: filters.key } : {}),
      ...(filters.target ? { targetId: filters.target } : {}),
    },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: REFRESH_MS,
    },
  );
  const failure = list.isError && (
    <Failure
      error={list.error}
      title="Could not load the audit log"
      onRetry={() => void list.refetch()}
      my="sm"
    />
  );
  if (!list.data) return failure || <Loading lines={10} height={44} />;
  const entries = list.data.pages.flatMap((page) => page.entries);
  if (entries.length === 0) {
    return (
      <>
        {failure}
        {AUDIT_FILTERS.some((name) => filters[name] !== "") ? (
          <NothingFound of="entry" onClear={onClear}>
            No entry passes all of the filters. Entries are deleted after the time that the operator has set.
          </NothingFound>
        ) : (
          <Empty title="No entries yet" icon={<IconHistory />}>
            Every change of a webhook, an API key or an app gets an entry here.
          </Empty>
        )}
      </>
    );
  }
  return (
    <>
      {!list.isFetchNextPageError && failure}
      <EntryList entries={entries} />
      {/* Where “Show more” was clicked. */}
      {list.isFetchNextPageError && failure}
      <LoadMore
        shown={entries.length}
        of={["entry", "entries"]}
        hasMore={list.hasNextPage}
        loading={list.isFetchingNextPage}
        onMore={() => void list.fetchNextPage()}
      />
    </>
  );
}
