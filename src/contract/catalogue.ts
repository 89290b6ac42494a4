import type { DescEnum, DescMessage } from "@bufbuild/protobuf";
import { PublishEventRequestSchema, WebhookProcessSchema } from "../../gen/webhook/v1/event_pb.ts";

/** One event type, as the proto names it. */
export interface CatalogueEntry {
  /** Number of the WebhookProcess, as REST sends it. */
  number: number;
  /** `OrderDispatched`, as REST returns it. */
  name: string;
  /** The member of PublishEventRequest.data that carries it: `order_dispatched`. */
  field: string;
  /** The message that its receivers get. */
  payload: DescMessage;
}

/** `ORDER_DISPATCHED` or `order_dispatched` → `OrderDispatched`. */
export function pascalCase(name: string): string {
  return name
    .toLowerCase()
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}

/**
 * The event types that an enum and the oneof `data` of a request declare together, in the order of their numbers.
 *
 * @throws Error naming what one of the two has and the other has not
 */
export function readCatalogue(processes: DescEnum, request: DescMessage): CatalogueEntry[] {
  const members = new Map(
    request.fields.filter((field) => field.oneof?.name === "data").map((field) => [field.name, field]),
  );
  const entries = processes.values
    .filter((value) => value.number !== 0)
    .map((value) => {
      const field = value.name.slice("WEBHOOK_PROCESS_".length).toLowerCase();
      const payload = members.get(field)?.message;
      if (!payload)
        throw new Error(`${value.name} has no payload: add a message ${field} to ${request.name}.data`);
      members.delete(field);
      return { number: value.number, name: pascalCase(field), field, payload };
    });
  const [left] = members.keys();
  if (left !== undefined) {
    throw new Error(
      `${request.name}.data.${left} has no event type: add WEBHOOK_PROCESS_${left.toUpperCase()} to ${processes.name}`,
    );
  }
  return entries.sort((a, b) => a.number - b.number);
}

/** Every event type, in the order of its number. */
export const catalogue: readonly CatalogueEntry[] = readCatalogue(
  WebhookProcessSchema,
  PublishEventRequestSchema,
);

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
export const payloadFields: readonly string[] = catalogue.map((entry) => entry.field);
