import { Button, Collapse, Grid, MultiSelect, Select, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconFilter } from "@tabler/icons-react";
import { catalogue } from "../../../../../src/contract/catalogue.ts";
import { SearchField } from "../../../parts/lists/search-field.tsx";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { DELIVERY_STATES } from "../../../parts/status/delivery-state.tsx";
import { FILTER_NAMES, type FilterBarProps, statesOf } from "./filters.ts";
import { TimeFilter } from "./time-filter.tsx";
import { WebhookSelect } from "./webhook-select.tsx";

const STATES = DELIVERY_STATES.map(({ name, label }) => ({ value: name, label }));
const TYPES = catalogue.map(({ name }) => name);

/** What the list is narrowed down by; on a phone all but the search is folded away. */
export function FilterBar({ filters, onChange }: FilterBarProps) {
  const narrow = useBelow("sm");
  const [opened, { toggle }] = useDisclosure();
  const set = FILTER_NAMES.filter(
    (name) => name !== "search" && name !== "page" && filters[name] !== "",
  ).length;
  const search = (
    <SearchField
      label="Search"
      placeholder="Order number, user, id or host"
      value={filters.search}
      onChange={(search) => onChange({ search: search.trim() }, { replace: true })}
    />
  );
  const others = <OtherFilters filters={filters} onChange={onChange} />;
  if (!narrow) {
    return (
      <Grid gap="md">
        <Grid.Col span={{ base: 6, lg: 5 }}>{search}</Grid.Col>
        {others}
      </Grid>
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
        <Grid gap="sm">{others}</Grid>
      </Collapse>
    </Stack>
  );
}

function OtherFilters({ filters, onChange }: FilterBarProps) {
  return (
    <>
      <Grid.Col span={{ base: 12, sm: 6, lg: 7 }}>
        <WebhookSelect value={filters.webhook} onChange={(webhook) => onChange({ webhook })} />
      </Grid.Col>
      <Grid.Col span={{ base: 12, sm: 6, lg: 5 }}>
        <MultiSelect
          label="State"
          placeholder={filters.state === "" ? "Any" : ""}
          data={STATES}
          value={statesOf(filters).map(({ name }) => name)}
          onChange={(names) => onChange({ state: names.join(",") })}
          clearable
          clearButtonProps={{ "aria-label": "Any state" }}
        />
      </Grid.Col>
      <Grid.Col span={{ base: 12, sm: 6, lg: 3 }}>
        <Select
          label="Event type"
          placeholder="Any"
          data={TYPES}
          value={TYPES.includes(filters.type) ? filters.type : null}
          onChange={(type) => onChange({ type: type ?? "" })}
          clearable
          clearButtonProps={{ "aria-label": "Any event type" }}
        />
      </Grid.Col>
      <TimeFilter filters={filters} onChange={onChange} />
    </>
  );
}
