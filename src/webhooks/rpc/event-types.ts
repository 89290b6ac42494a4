import { WebhookProcessSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { type CatalogueEntry, eventTypes, isNotice } from "../../contract/catalogue.ts";
import { commentOf } from "../../contract/comments.ts";
import { sampleMessage } from "../../contract/event-types/sample.ts";
import { payloadSchema } from "../../contract/event-types/schema.ts";
import { jsonWriter } from "../../contract/json/writer.ts";

/** An event type as described for integrators. */
export interface EventType {
  number: number;
  name: string;
  /** The event that the type describes. */
  description: string;
  /** A sample payload as JSON text. */
  sample: string;
  /** The JSON Schema (2020-12) of its payloads, as JSON text. */
  schema: string;
  /** Whether it is an event of the service itself, which callers cannot publish. */
  notice: boolean;
}

/**
 * The complete catalogue in numerical order, generated from the proto files.
 *
 * @throws Error if a proto type has no JSON representation or an invalid example
 */
export function describeEventTypes(entries: readonly CatalogueEntry[] = eventTypes()): EventType[] {
  return entries.map(({ number, name, payload }) => ({
    number,
    name,
    description: descriptionOf(number, payload),
    sample: jsonWriter(payload, "payload")(sampleMessage(payload)),
    schema: JSON.stringify(payloadSchema(payload)),
    notice: isNotice(number),
  }));
}

function descriptionOf(number: number, payload: CatalogueEntry["payload"]): string {
  const member = WebhookProcessSchema.values.find((value) => value.number === number);
  return (member && commentOf(member)) ?? commentOf(payload) ?? "";
}
