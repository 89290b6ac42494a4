import { skipToken, useQuery } from "@connectrpc/connect-query";
import { Box, Button, Collapse, Group, MultiSelect, Select, Stack, Text } from "@mantine/core";
import { useDebouncedValue, useDisclosure } from "@mantine/hooks";
import { IconFilter } from "@tabler/icons-react";
import { keepPreviousData } from "@tanstack/react-query";
import { useState } from "react";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useTypeChoices } from "../../api/event-types.ts";
import { failureReason } from "../../api/failure.ts";
import { typeName, typeNamed } from "../../api/type-names.ts";
import { clearButton, FilterSelect, SearchField, TYPING_MS, withChosen } from "../../parts/filters.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { useBelow } from "../../parts/listing.tsx";
import { Moment, SPANS } from "../../parts/pick-time.tsx";
import { DELIVERY_STATES } from "../../parts/states.tsx";
import { webhookTitle } from "../../parts/text/words.ts";
import { useZoned } from "../../parts/zoned.ts";
import { useCustomerFilter } from "../customers/chosen.tsx";
import { FILTER_NAMES, type FilterBarProps, readWebhookId, statesOf } from "./filters.ts";

/** What the search finds. */
export const SEARCHED =
  "A search finds whole values: order numbers and other searchable values of payloads, user ids, idempotency keys, hosts, and the ids of events, deliveries and webhooks; and parts of URLs and of names of webhooks. Several words are found together: SO-1001 tenant-42.";
const STATES = DELIVERY_STATES.map(({ name, label }) => ({ value: name, label }));
/** The maximum number of chosen states that are named; more are counted. */
const MAX_NAMED = 2;

/** The filters of the list, on one line; on a phone all but the search is folded away. */
export function FilterBar({ filters, onChange }: FilterBarProps) {
  const narrow = useBelow("sm");
  const [opened, { toggle }] = useDisclosure();
  const set = FILTER_NAMES.filter(
    (name) => !["search", "page", "open", "customer"].includes(name) && filters[name] !== "",
  ).length;
  const search = (
    <SearchField
      label="Search"
      labelHidden
      placeholder="SO-1001 tenant-42, webhook"
      title={SEARCHED}
      value={filters.search}
      onChange={(search) => onChange({ search }, { replace: true })}
    />
  );
  const others = <OtherFilters filters={filters} onChange={onChange} />;
  if (!narrow) {
    return (
      <Stack gap="xs">
        <Group gap="xs" wrap="nowrap" align="flex-start">
          <Box flex="3.6 1 0">{search}</Box>
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
      <Box flex="2.9 1 0" miw={0}>
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
          styles={{ input: { height: "2rem", minHeight: 0, paddingBlock: 5 } }}
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
  const at = useZoned();
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

/** The maximum number of choices that a list shows at once; others are found by typing. */
const MAX_SHOWN = 50;
/** The age up to which webhooks are not read again, in milliseconds. */
const FRESH_MS = 60_000;

/** Chooses one webhook, which the service finds by its name, URL or number. Shows no choice for an invalid id, which filters nothing. */
function WebhookSelect({ value: asked, onChange }: { value: string; onChange: (id: string) => void }) {
  const webhookId = readWebhookId(asked);
  const value = webhookId === undefined ? "" : String(webhookId);
  const [opened, { open }] = useDisclosure();
  const [typed, setTyped] = useState("");
  const chosen = useQuery(
    WebhookService.method.getWebhook,
    webhookId === undefined ? skipToken : { webhookId },
    { staleTime: FRESH_MS },
  );
  const isDeleted = failureReason(chosen.error) === "WEBHOOK_NOT_FOUND";
  const label = chosen.data?.webhook
    ? webhookTitle(chosen.data.webhook)
    : `#${value}${isDeleted ? " · deleted" : ""}`;
  const [search] = useDebouncedValue(typed === label ? "" : typed.trim(), TYPING_MS);
  const { data } = useQuery(
    WebhookService.method.searchWebhooks,
    { search, ...useCustomerFilter() },
    { enabled: opened, staleTime: FRESH_MS, placeholderData: keepPreviousData },
  );
  const found = new Map(data?.webhooks.map((webhook) => [String(webhook.id), webhook]));
  const choices = [...found].map(([id, webhook]) => ({ value: id, label: webhookTitle(webhook) }));
  return (
    <FilterSelect
      aria-label="Webhook"
      placeholder="Any webhook"
      data={withChosen(choices, value, label)}
      value={value}
      onChange={onChange}
      searchable
      onDropdownOpen={open}
      onSearchChange={setTyped}
      // The service has searched.
      filter={({ options }) => options}
      nothingFoundMessage={data ? "No webhook matches" : "Searching…"}
      renderOption={({ option }) => {
        const webhook = found.get(option.value);
        return (
          <Stack gap={0}>
            <Text size="sm" style={{ overflowWrap: "anywhere" }}>
              {option.label}
            </Text>
            {webhook && (
              <Dimmed size="xs" style={{ overflowWrap: "anywhere" }}>
                #{option.value} · {typeName(webhook)}
                {webhook.name !== undefined && ` · ${webhook.url}`}
              </Dimmed>
            )}
          </Stack>
        );
      }}
    />
  );
}
