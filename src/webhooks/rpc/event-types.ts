import { LRUCache } from "lru-cache";
import { type CatalogueEntry, eventType, eventTypes, isNotice } from "../../contract/catalogue.ts";
import { descriptionOf } from "../../contract/event-types/description.ts";
import { samplePayload } from "../../contract/event-types/sample.ts";
import { payloadSchema } from "../../contract/event-types/schema.ts";
import { type FilterField, filterFields } from "../../contract/filters/filter-fields.ts";

/** An event type as lists of many have it. */
export interface BriefEventType {
  number: number;
  name: string;
  /** What the operator calls it. */
  alias?: string;
  /** The event that the type describes. */
  description: string;
  /** Whether it is an event of the service itself, which callers cannot publish. */
  notice: boolean;
  /** Whether no new webhooks are registered for it. */
  deprecated: boolean;
}

/** An event type as described for integrators. */
export interface EventType extends BriefEventType {
  /** A sample payload as JSON text. */
  sample: string;
  /** The JSON Schema (2020-12) of its payloads, as JSON text. */
  schema: string;
  /** What a filter can name. */
  filterFields: FilterField[];
}

export function briefEventType(entry: CatalogueEntry): BriefEventType {
  const { number, name, alias, deprecated = false } = entry;
  const named = { number, name, ...(alias === undefined ? {} : { alias }) };
  return { ...named, description: descriptionOf(entry), notice: isNotice(number), deprecated };
}

/** The descriptions that are kept. Of thousands, all together would take more memory than the event types. */
const MAX_DESCRIBED = 500;

/** By the entry, because each registration may replace entries. */
const described = new LRUCache<CatalogueEntry, EventType>({ max: MAX_DESCRIBED, memoMethod: describe });

function describe(entry: CatalogueEntry): EventType {
  return {
    ...briefEventType(entry),
    sample: samplePayload(entry.payload),
    schema: JSON.stringify(payloadSchema(entry.payload)),
    filterFields: filterFields(entry.payload),
  };
}

/**
 * Describes an event type as its proto file does.
 *
 * @throws Error if a proto type has no JSON representation or an invalid example
 */
export function describeEventType(entry: CatalogueEntry): EventType {
  return described.memo(entry);
}

/** The complete catalogue in numerical order. */
export function describeEventTypes(entries: readonly CatalogueEntry[] = eventTypes()): EventType[] {
  return entries.map(describeEventType);
}

/** The sample payload of an event type, as JSON text. Undefined if this process does not know the type. */
export function sampleOf(process: number): string | undefined {
  const entry = eventType(process);
  return entry && describeEventType(entry).sample;
}
