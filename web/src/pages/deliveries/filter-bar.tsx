import { skipToken, useQuery } from "@connectrpc/connect-query";
import { Box, Button, Collapse, Group, MultiSelect, Select, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconFilter } from "@tabler/icons-react";
import { useMemo } from "react";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useTypeChoices } from "../../api/event-types.ts";
import { failureReason } from "../../api/failure.ts";
import { isReachable, useAllPages } from "../../api/queries.ts";
import { typeName, typeNamed } from "../../api/type-names.ts";
import { clearButton, FilterSelect, isUnlisted, SearchField, withChosen } from "../../parts/filters.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { useBelow } from "../../parts/listing.tsx";
import { Moment, SPANS } from "../../parts/pick-time.tsx";
import { DELIVERY_STATES } from "../../parts/states.tsx";
import { useZone } from "../../parts/time.tsx";
import { useCustomerFilter } from "../customers/filter.tsx";
import { FILTER_NAMES, type FilterBarProps, readWebhookId, statesOf } from "./filters.ts";

const STATES = DELIVERY_STATES.map(({ name, label }) => ({ value: name, label }));
/** The maximum number of chosen states that are named; more are counted. */
const MAX_NAMED = 2;

/** The filters of the list, on one line; on a phone all but the search is folded away. */
export function FilterBar({ filters, onChange }: FilterBarProps) {
  const narrow = useBelow("sm");
  const [opened, { toggle }] = useDisclosure();
  const set = FILTER_NAMES.filter(
    (name) => !["search", "page", "customer"].includes(name) && filters[name] !== "",
  ).length;
  const search = (
    <SearchField
      label="Search"
      labelHidden
      placeholder="Order number, user, id, host"
      value={filters.search}
      onChange={(search) => onChange({ search }, { replace: true })}
    />
  );
  const others = <OtherFilters filters={filters} onChange={onChange} />;
  if (!narrow) {
    return (
      <Stack gap="xs">
        <Group gap="xs" wrap="nowrap" align="flex-start">
          <Box flex="3 1 0">{search}</Box>
          {others}
        </Group>
        <Moments filters={filters} onChange={onChange} />
      </Stack>
    );
  }
  return (
    <Stack gap="sm">
      {search}
      <Button
        variant="default"
        leftSection={<IconFilter size={16} />}
        onClick={toggle}
        aria-expanded={opened}
        fullWidth
      >
        {set > 0 ? `Filters (${set})` : "Filters"}
      </Button>
      <Collapse expanded={opened}>
        <Stack gap="sm">
          {others}
          <Moments filters={filters} onChange={onChange} />
        </Stack>
      </Collapse>
    </Stack>
  );
}

/** `Failed, Retrying`; from the third state on, their number. */
function inWords(states: typeof DELIVERY_STATES): string {
  return states.length > MAX_NAMED ? `${states.length} states` : states.map(({ label }) => label).join(", ");
}

function OtherFilters({ filters, onChange }: FilterBarProps) {
  const chosen = statesOf(filters);
  const types = useTypeChoices("name");
  return (
    <>
      <Box flex="2.5 1 0" miw={0}>
        <WebhookSelect value={filters.webhook} onChange={(webhook) => onChange({ webhook })} />
      </Box>
      <Box flex="2.5 1 0" miw={0}>
        <MultiSelect
          aria-label="State"
          placeholder={filters.state === "" ? "Any state" : ""}
          data={STATES}
          value={chosen.map(({ name }) => name)}
          onChange={(names) => onChange({ state: names.join(",") })}
          clearable
          clearButtonProps={clearButton("Any state")}
          // One text for all of them, so that the filters stay on one line.
          renderPill={({ option }) =>
            option?.value === chosen[0]?.name && <Text className="chosen">{inWords(chosen)}</Text>
          }
          classNames={{ pillsList: "one-line" }}
        />
      </Box>
      <Box flex="2 1 0" miw={0}>
        <FilterSelect
          aria-label="Event type"
          placeholder="Any event type"
          data={types}
          value={typeNamed(filters.type)?.name ?? ""}
          onChange={(type) => onChange({ type })}
          searchable
          limit={MAX_SHOWN}
          nothingFoundMessage="No such event type"
        />
      </Box>
      <Box flex="2 1 0" miw={0}>
        <TimeFilter filters={filters} onChange={onChange} />
      </Box>
    </>
  );
}

const ANY = "any";
/** Also the value of `last` while both moments are empty: without it, the fields would disappear. */
const BETWEEN = "between";
const CHOICES = [
  { value: ANY, label: "Any time" },
  ...SPANS.map(({ value, label }) => ({ value, label })),
  { value: BETWEEN, label: "From … to …" },
];
function chosenOf({ last, from, to }: FilterBarProps["filters"]): string {
  if (SPANS.some(({ value }) => value === last)) return last;
  return last === BETWEEN || from || to ? BETWEEN : ANY;
}

/** The filter by time of creation: a span up to now, or between two moments. */
function TimeFilter({ filters, onChange }: FilterBarProps) {
  const { at } = useZone();
  function choose(value: string | null) {
    if (value === BETWEEN) onChange({ last: "", from: at().subtract(1, "day").startOf("day").toISOString() });
    else onChange({ last: value === ANY ? "" : (value ?? ""), from: "", to: "" });
  }

  return (
    <Select
      aria-label="Created"
      data={CHOICES}
      value={chosenOf(filters)}
      onChange={choose}
      allowDeselect={false}
    />
  );
}

/** The moments between which the deliveries were created, if that is chosen. */
function Moments({ filters, onChange }: FilterBarProps) {
  if (chosenOf(filters) !== BETWEEN) return null;
  function change(moments: { from?: string; to?: string }) {
    const { from, to } = { ...filters, ...moments };
    onChange({ ...moments, last: from || to ? "" : BETWEEN });
  }
  return (
    <Group gap="xs" grow>
      <Moment label="From" value={filters.from} onChange={(from) => change({ from })} />
      <Moment label="To" value={filters.to} onChange={(to) => change({ to })} />
    </Group>
  );
}

/** The maximum number of webhooks shown. More would be slow; type a part of the URL instead. */
const MAX_SHOWN = 50;

/** Chooses one webhook by its number, event type or address. Shows no choice for an invalid id, which filters nothing. */
function WebhookSelect({ value: asked, onChange }: { value: string; onChange: (id: string) => void }) {
  const webhookId = readWebhookId(asked);
  const value = webhookId === undefined ? "" : String(webhookId);
  const webhooks = useWebhooks();
  const known = useMemo(() => (webhooks ?? []).map(optionOf), [webhooks]);
  const isMissing = isUnlisted(known, value);
  // A webhook that is not listed was deleted, or registered after the list was read.
  const { data: unlisted, error } = useQuery(
    WebhookService.method.getWebhook,
    webhooks && isMissing && webhookId !== undefined ? { webhookId } : skipToken,
  );
  const data = useMemo(() => {
    const isDeleted = failureReason(error) === "WEBHOOK_NOT_FOUND";
    const label = unlisted?.webhook ? optionOf(unlisted.webhook).label : `#${value}`;
    return withChosen(known, value, isDeleted ? `#${value} · deleted` : label);
  }, [known, value, unlisted, error]);
  return (
    <FilterSelect
      aria-label="Webhook"
      placeholder="Any webhook"
      data={data}
      value={value}
      onChange={onChange}
      searchable
      limit={MAX_SHOWN}
      nothingFoundMessage="No webhook matches"
      renderOption={({ option }) => <Option label={option.label} />}
    />
  );
}

function optionOf(webhook: Webhook) {
  const { id, url } = webhook;
  return { value: String(id), label: `#${id} · ${typeName(webhook)} · ${url}` };
}

function Option({ label }: { label: string }) {
  const [id, type, url] = label.split(" · ");
  return (
    <Stack gap={0}>
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        {url ?? type}
      </Text>
      <Dimmed size="xs">{url ? `${id} · ${type}` : id}</Dimmed>
    </Stack>
  );
}

/** The interval between reads, and the age up to which data is not read again, in milliseconds. */
const REFRESH_MS = 60_000;

/** Every webhook that the session can reach; undefined until they are read. */
function useWebhooks(): readonly Webhook[] | undefined {
  const { data } = useAllPages(WebhookService.method.listWebhooks, useCustomerFilter(), {
    refreshMs: REFRESH_MS,
    freshMs: REFRESH_MS,
  });
  return useMemo(() => data?.webhooks.filter(isReachable), [data]);
}
