import type { MessageInitShape } from "@bufbuild/protobuf";
import { Grid, Select } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMemo } from "react";
import { ApiKeyService } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../../../gen/webhook/v1/event_pb.ts";
import {
  type SearchWebhooksRequestSchema,
  type Webhook,
  WebhookOrder,
  WebhookState,
} from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useTypeChoices } from "../../../api/event-types.ts";
import { useAllPages } from "../../../api/queries.ts";
import { useMay } from "../../../api/session.tsx";
import { typeNamed } from "../../../api/type-names.ts";
import {
  type Choice,
  FilterSelect,
  isUnlisted,
  MAX_CHOICES,
  SearchField,
  withChosen,
} from "../../../parts/filters.tsx";
import { WEBHOOK_HEALTHS } from "../../../parts/states.tsx";

/** The filters and the order of the list, by their names in the page's URL. */
export const FILTER_NAMES = [
  "search",
  "process",
  "health",
  "state",
  "application",
  "sort",
  "period",
] as const;

/** Each filter's text, "" where the address has none. */
export type WebhookFilters = Record<(typeof FILTER_NAMES)[number], string>;

/** What takes all filters away. */
export const NO_FILTERS = { search: "", process: "", health: "", state: "", application: "" };

/** The value of `application` for webhooks without an installed app. */
const NO_APPLICATION = "none";
const NEWEST = "newest";
const ORDERS = [
  { value: NEWEST, label: "Newest first", order: WebhookOrder.UNSPECIFIED },
  { value: "oldest", label: "Oldest first", order: WebhookOrder.OLDEST },
  { value: "health", label: "Least healthy first", order: WebhookOrder.LEAST_HEALTHY },
];
const STATES = [
  { value: "active", label: "Active", state: WebhookState.ACTIVE },
  { value: "paused", label: "Paused", state: WebhookState.PAUSED },
  { value: "open", label: "Circuit open", state: WebhookState.CIRCUIT_OPEN },
  { value: "disabled", label: "Disabled", state: WebhookState.DISABLED },
];
const HEALTHS = WEBHOOK_HEALTHS.map(({ name, label }) => ({ value: name, label }));

/** The search that the filters ask the service for. Invalid values, such as unknown states, are ignored. */
export function searchOf(filters: WebhookFilters): MessageInitShape<typeof SearchWebhooksRequestSchema> {
  const { search, application, ...chosen } = filters;
  const process = typeNamed(chosen.process)?.number as WebhookProcess | undefined;
  return {
    search,
    health: WEBHOOK_HEALTHS.flatMap(({ name, health }) => (name === chosen.health ? [health] : [])),
    states: STATES.flatMap(({ value, state }) => (value === chosen.state ? [state] : [])),
    order: ORDERS.find(({ value }) => value === chosen.sort)?.order ?? WebhookOrder.UNSPECIFIED,
    ...(process === undefined ? {} : { process }),
    ...(application === ""
      ? {}
      : { installedApplicationId: application === NO_APPLICATION ? "" : application }),
  };
}

const NARROW = { base: 6, md: 3, lg: 1.75 };
const ORDER = { base: 12, md: 4, lg: 2 };

/** The filters as they are, and what changes them. */
export interface ListFiltersProps {
  /** Those that the list shows. */
  webhooks: readonly Webhook[];
  filters: WebhookFilters;
  change: (changes: Partial<WebhookFilters>, options?: { replace?: boolean }) => void;
}

/** The filters and the order of the list of webhooks. */
export function ListFilters({ webhooks, filters, change }: ListFiltersProps) {
  const types = useTypeChoices("name");
  const applications = useApplicationChoices(webhooks, filters.application);
  const filter = (name: "process" | "health" | "state" | "application") => ({
    value: filters[name],
    onChange: (value: string) => change({ [name]: value }),
  });
  return (
    <Grid gap="xs" mb="xs">
      <Grid.Col span={{ base: 12, md: 8, lg: 2.75 }}>
        <SearchField
          label="Search webhooks"
          labelHidden
          placeholder="Name, URL, type, app or id"
          value={filters.search}
          onChange={(search) => change({ search }, { replace: true })}
        />
      </Grid.Col>
      <Grid.Col span={ORDER}>
        <Select
          aria-label="Order"
          data={ORDERS}
          value={ORDERS.some(({ value }) => value === filters.sort) ? filters.sort : NEWEST}
          onChange={(sort) => change({ sort: sort === NEWEST || !sort ? "" : sort })}
          allowDeselect={false}
        />
      </Grid.Col>
      <Grid.Col span={{ ...NARROW, lg: 2 }}>
        <FilterSelect
          aria-label="Event type"
          placeholder="Any event type"
          data={types}
          {...filter("process")}
          value={typeNamed(filters.process)?.name ?? ""}
          searchable
          limit={MAX_CHOICES}
          nothingFoundMessage="No such event type"
        />
      </Grid.Col>
      <Grid.Col span={NARROW}>
        <FilterSelect aria-label="Health" placeholder="Any health" data={HEALTHS} {...filter("health")} />
      </Grid.Col>
      <Grid.Col span={NARROW}>
        <FilterSelect aria-label="State" placeholder="Any state" data={STATES} {...filter("state")} />
      </Grid.Col>
      <Grid.Col span={NARROW}>
        <FilterSelect
          aria-label="Installed app"
          placeholder="Any app"
          {...applications}
          {...filter("application")}
          searchable
          limit={MAX_CHOICES}
          nothingFoundMessage="No such app"
        />
      </Grid.Col>
    </Grid>
  );
}

/** All apps once the list is opened or one of them is chosen, if the session may see them; else those of the shown webhooks. */
function useApplicationChoices(webhooks: readonly Webhook[], chosen: string) {
  const [opened, { open }] = useDisclosure();
  const shown = useMemo(() => applicationChoices(webhooks), [webhooks]);
  const enabled = useMay("Manage_Api_Keys") && (opened || isUnlisted(shown, chosen));
  const apps = useAllPages(ApiKeyService.method.listInstalledApps, {}, { enabled }).data?.installedApps;
  const choices = apps ? [...NO_APP, ...apps.map(({ id, name }) => ({ value: id, label: name }))] : shown;
  return { data: withChosen(choices, chosen), onDropdownOpen: open };
}

const NO_APP: readonly Choice[] = [{ value: NO_APPLICATION, label: "None" }];

function applicationChoices(webhooks: readonly Webhook[]): Choice[] {
  const names = new Map<string, string>();
  for (const { application, applicationName } of webhooks) {
    if (application) names.set(application, applicationName ?? application);
  }
  const choices = [...names].map(([value, label]) => ({ value, label }));
  return [...NO_APP, ...choices.sort((a, b) => a.label.localeCompare(b.label))];
}
