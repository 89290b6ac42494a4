import { Grid, Select } from "@mantine/core";
import { useMemo } from "react";
import { ApiKeyService } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { CircuitBreakerState, type Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useTypeChoices } from "../../../api/event-types.ts";
import { useAllPages } from "../../../api/queries.ts";
import { useMay } from "../../../api/session.tsx";
import { typeName, typeNamed } from "../../../api/type-names.ts";
import {
  type Choice,
  FilterSelect,
  isUnlisted,
  MAX_CHOICES,
  SearchField,
  withChosen,
} from "../../../parts/filters.tsx";
import { WEBHOOK_HEALTHS } from "../../../parts/states.tsx";
import type { LastDay } from "./figures.tsx";

/** The filters and the order of the list, by their names in the page's URL. */
export const FILTER_NAMES = [
  "search",
  "process",
  "health",
  "state",
  "application",
  "sort",
  "period",
  "page",
  "new",
] as const;

/** Each filter's text, "" where the address has none. */
export type WebhookFilters = Record<(typeof FILTER_NAMES)[number], string>;

/** The value of `application` for webhooks without an installed app. */
const NO_APPLICATION = "none";

/** The webhooks that pass the filters, in the order asked for; newest first unless told. */
export function findWebhooks(
  webhooks: readonly Webhook[],
  filters: WebhookFilters,
  stats: LastDay["stats"],
): Webhook[] {
  const words = filters.search.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = WEBHOOK_HEALTHS.find(({ name }) => name === filters.health);
  const found = webhooks.filter(
    (webhook) =>
      (!wanted || webhook.health === wanted.health) &&
      (!filters.process || isOfType(webhook, filters.process)) &&
      (!filters.state || stateOf(webhook) === filters.state) &&
      (!filters.application || (webhook.application ?? NO_APPLICATION) === filters.application) &&
      matches(webhook, words),
  );
  if (filters.sort === "oldest") return found.sort((a, b) => compare(a.id, b.id));
  if (filters.sort === "health") {
    // The numbers of the proto rise from healthy to failing.
    return found.sort((a, b) => b.health - a.health || compare(b.id, a.id));
  }
  if (filters.sort === "failures") {
    const failed = ({ id }: Webhook) => stats?.get(id)?.failedAttempts ?? 0n;
    return found.sort((a, b) => compare(failed(b), failed(a)) || compare(b.id, a.id));
  }
  return found.sort((a, b) => compare(b.id, a.id));
}

/** Whether a webhook is of the event type with this name or alias, or with a name that only the webhook has. */
function isOfType({ webhookProcess: process, webhookProcessName }: Webhook, text: string): boolean {
  const type = typeNamed(text);
  return type ? type.number === process : [webhookProcessName, String(process)].includes(text);
}

/** By the values of the filter. */
function stateOf({ paused, circuitBreaker }: Webhook): string {
  if (paused) return "paused";
  if (circuitBreaker?.state === CircuitBreakerState.OPEN) return "open";
  return circuitBreaker?.state === CircuitBreakerState.DISABLED ? "disabled" : "active";
}

/** The other event types of each webhook's endpoint; nothing for a webhook without any. */
export function otherTypes(webhooks: readonly Webhook[]): ReadonlyMap<bigint, readonly Webhook[]> {
  const others = new Map<bigint, readonly Webhook[]>();
  const shared = webhooks.filter(({ endpointId }) => endpointId !== undefined);
  for (const some of Map.groupBy(shared, ({ endpointId }) => endpointId).values()) {
    if (some.length === 1) continue;
    for (const { id } of some)
      others.set(
        id,
        some.filter((each) => each.id !== id),
      );
  }
  return others;
}

/**
 * Whether a webhook has every word somewhere: in its name, its address, its event type, its application, or as its id or that of
 * its endpoint.
 */
function matches(webhook: Webhook, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const { name = "", url, applicationName = "" } = webhook;
  const text = [name, url, typeName(webhook), applicationName].join(" ").toLowerCase();
  const ids = [String(webhook.id), webhook.endpointId];
  return words.every((word) => text.includes(word) || ids.includes(word));
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const NARROW = { base: 6, md: 3, lg: 1.75 };
const ORDER = { base: 12, md: 4, lg: 2 };
const HEALTHS = WEBHOOK_HEALTHS.map(({ name, label }) => ({ value: name, label }));
const NEWEST = "newest";
const ORDERS = [
  { value: NEWEST, label: "Newest first" },
  { value: "oldest", label: "Oldest first" },
  { value: "health", label: "Least healthy first" },
  { value: "failures", label: "Most failed attempts first" },
];
const STATES = [
  { value: "active", label: "Active" },
  { value: "paused", label: "Paused" },
  { value: "open", label: "Circuit open" },
  { value: "disabled", label: "Disabled" },
];

/** The filters as they are, and what changes them. */
export interface ListFiltersProps {
  webhooks: readonly Webhook[];
  filters: WebhookFilters;
  change: (changes: Partial<WebhookFilters>, options?: { replace?: boolean }) => void;
}

/** The filters and the order of the list of webhooks. */
export function ListFilters({ webhooks, filters, change }: ListFiltersProps) {
  const types = useTypeChoices("name");
  const processes = useMemo(() => processChoices(types, webhooks), [types, webhooks]);
  const process = typeNamed(filters.process)?.name ?? filters.process;
  const applications = useApplicationChoices(webhooks, filters.application);
  const filter = (name: "process" | "health" | "state" | "application") => ({
    value: filters[name],
    onChange: (value: string) => change({ [name]: value, page: "" }),
  });
  return (
    <Grid gap="xs" mb="xs">
      <Grid.Col span={{ base: 12, md: 8, lg: 2.75 }}>
        <SearchField
          label="Search webhooks"
          labelHidden
          placeholder="Name, URL, type, app or id"
          value={filters.search}
          onChange={(search) => change({ search, page: "" }, { replace: true })}
        />
      </Grid.Col>
      <Grid.Col span={ORDER}>
        <Select
          aria-label="Order"
          data={ORDERS}
          value={filters.sort || NEWEST}
          onChange={(sort) => change({ sort: sort === NEWEST || !sort ? "" : sort, page: "" })}
          allowDeselect={false}
        />
      </Grid.Col>
      <Grid.Col span={{ ...NARROW, lg: 2 }}>
        <FilterSelect
          aria-label="Event type"
          placeholder="Any event type"
          data={withChosen(processes, process)}
          {...filter("process")}
          value={process}
          searchable
          limit={MAX_CHOICES}
          nothingFoundMessage="No such event type"
        />
      </Grid.Col>
      <Grid.Col span={NARROW}>
        <FilterSelect aria-label="Health" placeholder="Any health" data={HEALTHS} {...filter("health")} />
      </Grid.Col>
      <Grid.Col span={NARROW}>
        <FilterSelect
          aria-label="State"
          placeholder="Any state"
          data={withChosen(STATES, filters.state)}
          {...filter("state")}
        />
      </Grid.Col>
      <Grid.Col span={NARROW}>
        <FilterSelect
          aria-label="Installed app"
          placeholder="Any app"
          data={applications}
          {...filter("application")}
          searchable
          nothingFoundMessage="No such app"
        />
      </Grid.Col>
    </Grid>
  );
}

/** Every event type there is, and those of webhooks that the page does not know. */
function processChoices(types: readonly Choice[], webhooks: readonly Webhook[]): Choice[] {
  const names = webhooks.map(
    ({ webhookProcess: process, webhookProcessName: name }) => name || String(process),
  );
  const others = new Set(names.filter((name) => typeNamed(name) === undefined));
  return [...types, ...[...others].map((name) => ({ value: name, label: name }))];
}

/** The apps of the webhooks, and the chosen one: by its name, or by its id if the session may not see apps. */
function useApplicationChoices(webhooks: readonly Webhook[], chosen: string): Choice[] {
  const choices = useMemo(() => applicationChoices(webhooks), [webhooks]);
  const enabled = useMay("Manage_Api_Keys") && isUnlisted(choices, chosen);
  const apps = useAllPages(ApiKeyService.method.listInstalledApps, {}, { enabled }).data?.installedApps;
  return withChosen(choices, chosen, apps?.find(({ id }) => id === chosen)?.name);
}

function applicationChoices(webhooks: readonly Webhook[]): Choice[] {
  const names = new Map<string, string>();
  for (const { application, applicationName } of webhooks) {
    if (application) names.set(application, applicationName ?? application);
  }
  const choices = [...names].map(([value, label]) => ({ value, label }));
  return [
    { value: NO_APPLICATION, label: "None" },
    ...choices.sort((a, b) => a.label.localeCompare(b.label)),
  ];
}
