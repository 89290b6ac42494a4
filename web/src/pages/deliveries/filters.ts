import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { DeliveryState, ListDeliveriesRequestSchema } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { typeNamed } from "../../api/type-names.ts";
import { SPANS } from "../../parts/pick-time.tsx";
import { DELIVERY_STATES } from "../../parts/states.tsx";

/** The parameters of the list's address: the filter, the page, and the delivery that is open beside it. */
export const FILTER_NAMES = [
  "search",
  "state",
  "type",
  "webhook",
  "customer",
  "last",
  "from",
  "to",
  "page",
  "open",
] as const;

/** The filter as the address spells it, "" where it has none. */
export type Filters = Record<(typeof FILTER_NAMES)[number], string>;

/** No filter at all, on the first page. */
export const NO_FILTERS = Object.fromEntries(FILTER_NAMES.map((name) => [name, ""])) as Filters;

/** The filter fields that lists of deliveries and sending many again share. */
export type DeliveryFilter = Pick<
  MessageInitShape<typeof ListDeliveriesRequestSchema>,
  "webhookId" | "process" | "search" | "customer"
> & { states: DeliveryState[]; from?: Timestamp; to?: Timestamp };

/** The states in a URL, in the order of all lists of states. */
export function statesOf({ state }: Filters): typeof DELIVERY_STATES {
  const names = new Set(state.split(","));
  return DELIVERY_STATES.filter(({ name }) => names.has(name));
}

/** The filter in a URL. Invalid values, such as unknown states, are ignored. */
export function readFilter(filters: Filters, now: number): DeliveryFilter {
  const type = typeNamed(filters.type);
  const span = SPANS.find(({ value }) => value === filters.last);
  const from = span ? now - span.ms : Date.parse(filters.from);
  const to = span ? Number.NaN : Date.parse(filters.to);
  const webhookId = readWebhookId(filters.webhook);
  return {
    states: statesOf(filters).map(({ state }) => state),
    ...(filters.search === "" ? {} : { search: filters.search }),
    ...(filters.customer === "" ? {} : { customer: filters.customer }),
    ...(webhookId === undefined ? {} : { webhookId }),
    ...(type ? { process: type.number as WebhookProcess } : {}),
    ...(Number.isNaN(from) ? {} : { from: timestampFromMs(from) }),
    ...(Number.isNaN(to) ? {} : { to: timestampFromMs(to) }),
  };
}

/** The id of a webhook in a URL; undefined if it is not valid. */
export function readWebhookId(text: string): bigint | undefined {
  return /^\d{1,18}$/.test(text) ? BigInt(text) : undefined;
}

/** The filter as it is, and what changes some of it. */
export interface FilterBarProps {
  filters: Filters;
  /** `replace` where the change is to be no step of Back. */
  onChange: (changes: Partial<Filters>, options?: { replace?: boolean }) => void;
}
