import { Grid, Input, SegmentedControl, Select } from "@mantine/core";
import type { ApiKey, InstalledApp } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { SearchField } from "../../../parts/lists/search-field.tsx";
import { clearButton, withChosen } from "../../../parts/lists/select-values.ts";

/** The filters of the page, as its address names them. */
export const KEY_FILTERS = ["search", "state", "app"] as const;

/** The values of the filters; "" if not set. */
export type KeyFilterValues = Record<(typeof KEY_FILTERS)[number], string>;

const STATES = [
  { value: "", label: "Active" },
  { value: "revoked", label: "Revoked" },
  { value: "all", label: "All" },
];

/** A secret, and of it as much as lists show; the rest must not get into the page's address. */
const SECRET = /(whk_[\w-]{8})[\w-]*/g;

/** The keys that the filters leave, the newest first. */
export function filterKeys(keys: readonly ApiKey[], { search, state, app }: KeyFilterValues): ApiKey[] {
  const wanted = search.trim().toLowerCase();
  return keys
    .filter((key) => {
      if (state !== "all" && (key.revoked !== undefined) !== (state === "revoked")) return false;
      if (app && key.installedApplicationId !== app) return false;
      return [key.name, key.prefix, key.id].some((text) => text.toLowerCase().includes(wanted));
    })
    .reverse();
}

/** Chooses which keys are shown. */
export function KeyFilters(props: {
  filters: KeyFilterValues;
  apps: readonly InstalledApp[];
  onChange: (changes: Partial<KeyFilterValues>, options?: { replace?: boolean }) => void;
}) {
  const { filters, apps, onChange } = props;
  return (
    <Grid gap="md" mb="md" align="flex-end">
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <SearchField
          label="Search keys"
          placeholder="Name, prefix or id"
          value={filters.search}
          onChange={(text) => onChange({ search: text.replaceAll(SECRET, "$1") }, { replace: true })}
        />
      </Grid.Col>
      {(apps.length > 0 || filters.app !== "") && (
        <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
          <Select
            label="Installed app"
            placeholder="Any or none"
            data={withChosen(
              apps.map(({ id, name }) => ({ value: id, label: name })),
              filters.app,
            )}
            value={filters.app || null}
            onChange={(app) => onChange({ app: app ?? "" })}
            searchable
            clearable
            clearButtonProps={clearButton("Any installed app")}
            nothingFoundMessage="No such app"
          />
        </Grid.Col>
      )}
      <Grid.Col span={{ base: 12, sm: "content" }}>
        <Input.Wrapper label="State" labelElement="div">
          <SegmentedControl
            fullWidth
            aria-label="State"
            data={STATES}
            value={STATES.some(({ value }) => value === filters.state) ? filters.state : ""}
            onChange={(state) => onChange({ state })}
          />
        </Input.Wrapper>
      </Grid.Col>
    </Grid>
  );
}
