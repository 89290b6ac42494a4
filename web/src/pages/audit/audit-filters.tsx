import { Grid, Select } from "@mantine/core";
import type { ApiKey } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { SearchField } from "../../parts/lists/search-field.tsx";
import { clearButton, withChosen } from "../../parts/lists/select-values.ts";
import { ACTIONS } from "./actions.ts";

/** The filters of the page, as its address names them. */
export const AUDIT_FILTERS = ["action", "key", "target"] as const;

/** The values of the filters; "" if not set. */
export type AuditFilterValues = Record<(typeof AUDIT_FILTERS)[number], string>;

/** Chooses which entries are shown. */
export function AuditFilters(props: {
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
        <Select
          label="Action"
          placeholder="Any action"
          data={ACTIONS.map(({ name, label }) => ({ value: name, label }))}
          value={ACTIONS.some(({ name }) => name === filters.action) ? filters.action : null}
          onChange={(action) => onChange({ action: action ?? "" })}
          searchable
          clearable
          clearButtonProps={clearButton("Any action")}
          nothingFoundMessage="No such action"
        />
      </Grid.Col>
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <Select
          label="Changed with"
          placeholder="Any API key"
          // A removed key is not listed, but its entries remain.
          data={withChosen(keyOptions, filters.key, `Key ${filters.key}`)}
          value={filters.key || null}
          onChange={(key) => onChange({ key: key ?? "" })}
          searchable
          clearable
          clearButtonProps={clearButton("Any API key")}
          nothingFoundMessage="No such key"
        />
      </Grid.Col>
    </Grid>
  );
}
