import { PublishEventRequestSchema, WebhookProcessSchema } from "../gen/webhook/v1/event_pb.ts";

/** One event type, as the proto names it. */
export interface CatalogueEntry {
  /** Number of the WebhookProcess, as REST sends it. */
  number: number;
  /** `OrderDispatched`, as REST returns it. */
  name: string;
  /** The member of PublishEventRequest.data that carries it: `order_dispatched`. */
  field: string;
}

/** `ORDER_DISPATCHED` or `order_dispatched` → `OrderDispatched`. */
export function pascalCase(name: string): string {
  return name
    .toLowerCase()
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}

/** Every event type, in the order of its number. */
export const catalogue: readonly CatalogueEntry[] = WebhookProcessSchema.values
  .filter((value) => value.number !== 0)
  .map((value) => ({
    number: value.number,
    name: pascalCase(value.name.slice("WEBHOOK_PROCESS_".length)),
    field: value.name.slice("WEBHOOK_PROCESS_".length).toLowerCase(),
  }))
  .sort((a, b) => a.number - b.number);

const byNumber = new Map(catalogue.map((entry) => [entry.number, entry]));
const byField = new Map(catalogue.map((entry) => [entry.field, entry]));

/** The name of a process for people and for REST; its number as text when a later version of the service made it. */
export function processName(number: number): string {
  return byNumber.get(number)?.name ?? String(number);
}

/** The process whose payload a member of PublishEventRequest.data carries, by the member's name in the proto. */
export function processOfField(field: string): number | undefined {
  return byField.get(field)?.number;
}

/** The members of PublishEventRequest.data, as the proto names them. */
export const payloadFields: readonly string[] = (PublishEventRequestSchema.oneofs[0]?.fields ?? []).map(
  (field) => field.name,
);
