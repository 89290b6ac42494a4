import { Box, Button, Collapse, Group, MultiSelect, Select, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconFilter } from "@tabler/icons-react";
import { catalogue } from "../../../../../src/contract/catalogue.ts";
import { SearchField } from "../../../parts/lists/search-field.tsx";
import { clearButton } from "../../../parts/lists/select-values.ts";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { DELIVERY_STATES } from "../../../parts/status/delivery-state.tsx";
import { FILTER_NAMES, type FilterBarProps, statesOf } from "./filters.ts";
import { Moments, TimeFilter } from "./time-filter.tsx";
import { WebhookSelect } from "./webhook-select.tsx";

const STATES = DELIVERY_STATES.map(({ name, label }) => ({ value: name, label }));
/** The maximum number of chosen states that are named; more are counted. */
const MAX_NAMED = 2;
const TYPES = catalogue.map(({ name }) => name);

/** The filters of the list, on one line; on a phone all but the search is folded away. */
export function FilterBar({ filters, onChange }: FilterBarProps) {
  const narrow = useBelow("sm");
  const [opened, { toggle }] = useDisclosure();
  const set = FILTER_NAMES.filter(
    (name) => name !== "search" && name !== "page" && filters[name] !== "",
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
        <Select
          aria-label="Event type"
          placeholder="Any event type"
          data={TYPES}
          value={TYPES.includes(filters.type) ? filters.type : null}
          onChange={(type) => onChange({ type: type ?? "" })}
          clearable
          clearButtonProps={clearButton("Any event type")}
        />
      </Box>
      <Box flex="2 1 0" miw={0}>
        <TimeFilter filters={filters} onChange={onChange} />
      </Box>
    </>
  );
}
