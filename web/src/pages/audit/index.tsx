import { useInfiniteQuery } from "@connectrpc/connect-query";
import { Grid } from "@mantine/core";
import { IconHistory } from "@tabler/icons-react";
import { type ApiKey, ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import { useAllPages } from "../../api/queries.ts";
import { Loading } from "../../parts/failure.tsx";
import { FilterSelect, SearchField, useUrlFilters, withChosen } from "../../parts/filters.tsx";
import { Empty, NothingFound, Pages } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { CustomerFilter, useCustomerFilter } from "../customers/filter.tsx";
import { ACTIONS, EntryList } from "./entry-list.tsx";

/** The number of items per page. */
const PAGE_SIZE = 50;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;

/** The audit log, newest first, with filters in the page's URL. */
export default function AuditPage() {
  const [filters, change] = useUrlFilters(AUDIT_FILTERS);
  const keys = useAllPages(ApiKeyService.method.listApiKeys, useCustomerFilter());
  return (
    <>
      <PageTitle
        title="Audit log"
        actions={<CustomerFilter />}
        description="Who changed webhooks, API keys and apps, when, and from where. Entries cannot be changed."
      />
      <AuditFilters filters={filters} keys={keys.data?.apiKeys ?? []} onChange={change} />
      <Entries filters={filters} onClear={() => change({ action: "", key: "", target: "", customer: "" })} />
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
      ...(filters.customer ? { customer: filters.customer } : {}),
      ...(filters.key ? { apiKeyId: filters.key } : {}),
      ...(filters.target ? { targetId: filters.target } : {}),
    },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: REFRESH_MS,
    },
  );
  return (
    <Pages
      list={list}
      items={list.data?.pages.flatMap((page) => page.entries)}
      of={["entry", "entries"]}
      failed="Could not load the audit log"
      loading={<Loading lines={10} height={44} />}
      empty={
        AUDIT_FILTERS.some((name) => filters[name] !== "") ? (
          <NothingFound of="entry" onClear={onClear}>
            No entry passes all of the filters. Entries are deleted after the time that the operator has set.
          </NothingFound>
        ) : (
          <Empty title="No entries yet" icon={<IconHistory />}>
            Every change of a webhook, an API key or an app gets an entry here.
          </Empty>
        )
      }
    >
      {(entries) => <EntryList entries={entries} />}
    </Pages>
  );
}

/** The filters of the page, as its address names them. */
const AUDIT_FILTERS = ["action", "key", "target", "customer"] as const;

/** The values of the filters; "" if not set. */
type AuditFilterValues = Record<(typeof AUDIT_FILTERS)[number], string>;

/** Chooses which entries are shown. */
function AuditFilters(props: {
  filters: AuditFilterValues;
  keys: readonly ApiKey[];
  onChange: (changes: Partial<AuditFilterValues>, options?: { replace?: boolean }) => void;
}) {
  const { filters, keys, onChange } = props;
  const keyOptions = keys.map(({ id, name, prefix }) => ({ value: id, label: `${name} (${prefix}…)` }));
  return (
    <Grid gap="md" mb="md" align="flex-end">
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <SearchField
          label="Id of what was changed"
          placeholder="Webhook, delivery, key or app"
          value={filters.target}
          onChange={(target) => onChange({ target }, { replace: true })}
        />
      </Grid.Col>
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <FilterSelect
          label="Action"
          placeholder="Any action"
          data={ACTIONS.map(({ name, label }) => ({ value: name, label }))}
          value={ACTIONS.some(({ name }) => name === filters.action) ? filters.action : ""}
          onChange={(action) => onChange({ action })}
          searchable
          nothingFoundMessage="No such action"
        />
      </Grid.Col>
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <FilterSelect
          label="Changed with"
          placeholder="Any API key"
          // A removed key is not listed, but its entries remain.
          data={withChosen(keyOptions, filters.key, `Key ${filters.key}`)}
          value={filters.key}
          onChange={(key) => onChange({ key })}
          searchable
          nothingFoundMessage="No such key"
        />
      </Grid.Col>
    </Grid>
  );
}
