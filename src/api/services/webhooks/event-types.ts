import { WebhookProcessSchema } from "../../../../gen/webhook/v1/event_pb.ts";
import { type CatalogueEntry, catalogue } from "../../../contract/catalogue.ts";
import { commentOf } from "../../../contract/comments.ts";
import { sampleMessage } from "../../json/sample.ts";
import { payloadSchema } from "../../json/schema.ts";
import { jsonWriter } from "../../json/writer.ts";

/** An event type as integrators are told about it. */
export interface EventType {
  number: number;
  name: string;
  /** What has happened. */
  description: string;
  /** A payload as receivers get it: JSON text. */
  sample: string;
  /** The JSON Schema (2020-12) of its payloads: JSON text. */
  schema: string;
}

/**
 * The whole catalogue, in the order of its numbers, made from the proto files alone.
 *
 * @throws Error when the proto files hold something that has no JSON or an example that is none
 */
export function describeEventTypes(entries: readonly CatalogueEntry[] = catalogue): EventType[] {
  return entries.map(({ number, name, payload }) => ({
    number,
    name,
    description: descriptionOf(number, payload),
    sample: jsonWriter(payload, "payload")(sampleMessage(payload)),
    schema: JSON.stringify(payloadSchema(payload)),
  }));
}

function descriptionOf(number: number, payload: CatalogueEntry["payload"]): string {
  const member = WebhookProcessSchema.values.find((value) => value.number === number);
  return (member && commentOf(member)) ?? commentOf(payload) ?? "";
}
