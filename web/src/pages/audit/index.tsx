import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { callUnaryMethod, useInfiniteQuery, useTransport } from "@connectrpc/connect-query";
import { Button, Grid, Menu } from "@mantine/core";
import { IconDownload, IconHistory } from "@tabler/icons-react";
import { useState } from "react";
import { type ApiKey, ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import { ExportFormat } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { useAllPages } from "../../api/queries.ts";
import { Loading, notifyFailure } from "../../parts/failure.tsx";
import { FilterSelect, SearchField, withChosen } from "../../parts/filters.tsx";
import { Empty, NothingFound, Pages } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { Moment } from "../../parts/pick-time.tsx";
import { notifyDone, saveFile } from "../../parts/save.ts";
import { countOf } from "../../parts/text/words.ts";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { useCustomerFilter } from "../customers/chosen.tsx";
import { CustomerFilter } from "../customers/filter.tsx";
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
        description="Who changed webhooks, API keys and apps, when, and from where. Entries cannot be changed."
        actions={
          <>
            <CustomerFilter />
            <ExportMenu filter={filterOf(filters)} />
          </>
        }
      />
      <AuditFilters filters={filters} keys={keys.data?.apiKeys ?? []} onChange={change} />
      <Entries filters={filters} onClear={() => change(NO_FILTERS)} />
    </>
  );
}

function Entries({ filters, onClear }: { filters: AuditFilterValues; onClear: () => void }) {
  const list = useInfiniteQuery(
    AuditService.method.listAuditEntries,
    { pageSize: PAGE_SIZE, pageToken: "", ...filterOf(filters) },
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
const AUDIT_FILTERS = ["search", "action", "key", "target", "from", "to", "customer"] as const;

/** The values of the filters; "" if not set. */
type AuditFilterValues = Record<(typeof AUDIT_FILTERS)[number], string>;

const NO_FILTERS = Object.fromEntries(AUDIT_FILTERS.map((name) => [name, ""])) as AuditFilterValues;

/** The filter of requests. Invalid values are ignored. */
function filterOf({ search, action, key, target, from, to, customer }: AuditFilterValues) {
  const chosen = ACTIONS.find(({ name }) => name === action)?.action;
  const [start, end] = [Date.parse(from), Date.parse(to)];
  return {
    actions: chosen === undefined ? [] : [chosen],
    search,
    ...(customer ? { customer } : {}),
    ...(key ? { apiKeyId: key } : {}),
    ...(target ? { targetId: target } : {}),
    ...(Number.isNaN(start) ? {} : { from: timestampFromMs(start) }),
    ...(Number.isNaN(end) ? {} : { to: timestampFromMs(end) }),
  };
}

const FORMATS = [
  { label: "CSV file", format: ExportFormat.CSV, extension: "csv" },
  { label: "JSON lines file", format: ExportFormat.JSON_LINES, extension: "jsonl" },
];

/** Saves all entries that the filters find. */
function ExportMenu({ filter }: { filter: ReturnType<typeof filterOf> }) {
  const transport = useTransport();
  const [isRunning, setRunning] = useState(false);
  async function run({ format, extension }: (typeof FORMATS)[number]) {
    setRunning(true);
    try {
      const parts: string[] = [];
      let [pageToken, count] = ["", 0];
      do {
        const asked = { ...filter, format, pageToken };
        const page = await callUnaryMethod(transport, AuditService.method.exportAuditEntries, asked);
        parts.push(page.lines);
        count += page.entries;
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      const name = saveFile(new Blob(parts, { type: "text/plain;charset=utf-8" }), "audit-log", extension);
      notifyDone(`${countOf(count, "entry", "entries")} saved as ${name}.`);
    } catch (error) {
      notifyFailure("The export has not ended", error);
    } finally {
      setRunning(false);
    }
  }
  return (
    <Menu>
      <Menu.Target>
        <Button variant="default" leftSection={<IconDownload size={16} />} loading={isRunning}>
          Export…
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        {FORMATS.map((each) => (
          <Menu.Item key={each.extension} onClick={() => void run(each)}>
            {each.label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

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
          label="Search"
          placeholder="Name or id of what was changed, or name of a key"
          value={filters.search || filters.target}
          onChange={(search) => onChange({ search, target: "" }, { replace: true })}
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
      {(["from", "to"] as const).map((end) => (
        <Grid.Col key={end} span={{ base: 12, sm: 6, lg: 4 }}>
          <Moment
            label={end === "from" ? "From" : "To"}
            value={filters[end]}
            onChange={(time) => onChange({ [end]: time })}
          />
        </Grid.Col>
      ))}
    </Grid>
  );
}
