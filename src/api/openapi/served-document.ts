import generated from "../../../gen/openapi.json" with { type: "json" };
import { slices } from "../../calls/index.ts";
import { readConfig } from "../../config/index.ts";
import type { CatalogueEntry } from "../../contract/catalogue.ts";
import { descriptionOf } from "../../contract/event-types/description.ts";
import type { JsonSchema } from "../../contract/event-types/schema-scalars.ts";
import { withinTimeout } from "../../contract/time-in-words.ts";
import { answerSchemas } from "./answer-schemas.ts";
import { describeDelivery } from "./delivery-requests.ts";

/**
 * The generated OpenAPI document with other event types, as JSON. Works in short turns: of thousands of event types, it takes seconds.
 *
 * @param types the event types
 * @param deliveryTimeoutMs the timeout of a delivery, in milliseconds
 */
export async function servedDocument(
  types: readonly CatalogueEntry[],
  deliveryTimeoutMs: number,
): Promise<string> {
  const within = withinTimeout(deliveryTimeoutMs);
  // It is generated with the default.
  const usual = withinTimeout(readConfig({}).delivery.timeoutMs);
  const document = JSON.parse(JSON.stringify(generated).replaceAll(usual, within)) as typeof generated;
  const { paths, components } = document;
  const builtIn: Record<string, JsonSchema> = document.webhooks;
  // A name without a package, such as Webhook, can be one of the document's own.
  const payloads = answerSchemas("payload", ({ typeName }) =>
    Object.hasOwn(components.schemas, typeName) ? `.${typeName}` : typeName,
  );
  const webhooks: Record<string, JsonSchema> = {};
  const nextSlice = slices("");
  for (const entry of types) {
    webhooks[entry.name] = builtIn[entry.name] ?? describeDelivery(entry, payloads, within);
    await nextSlice();
  }
  const names = types.map(({ name }) => name);
  components.schemas.Webhook.properties.WebhookProcess.enum = names;
  for (const path of ["/api/webhook", "/api/v1/webhook", "/api/v2/webhook"] as const)
    for (const { schema } of Object.values(paths[path].post.requestBody.content))
      Object.assign(schema.properties.process, {
        enum: types.map(({ number }) => number),
        "x-enum-varnames": names,
        "x-enum-descriptions": types.map(descriptionOf),
      });
  const schemas = { ...components.schemas, ...payloads.components() };
  return JSON.stringify({ ...document, webhooks, components: { ...components, schemas } });
}
