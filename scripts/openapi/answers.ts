import type { AnswerSchemas } from "../../src/api/openapi/answer-schemas.ts";
import { exampleData } from "../../src/api/openapi/examples.ts";
import type { RestBinding } from "../../src/api/rest/bindings.ts";
import type { JsonSchema } from "../../src/contract/event-types/schema-scalars.ts";
import { FAILURES } from "./failures.ts";
import { rateLimitHeaders } from "./headers.ts";

/** All responses of an operation, by status. */
export function describeAnswers(binding: RestBinding, schemas: AnswerSchemas): Record<string, JsonSchema> {
  const { data, warnings } = binding;
  const message = data.message;
  if (!message)
    throw new Error(`${data.parent.typeName}.${data.name}: Data must be a message or a list of them`);
  const isList = data.fieldKind === "list";
  const item = schemas.of(message);
  const example = exampleData(message, "rest");
  const schema = {
    type: "object",
    required: ["Success", "Data", "Warnings"],
    properties: {
      Success: { type: "boolean", const: true },
      Data: isList ? { type: "array", items: item } : item,
      Warnings: {
        type: "array",
        items: { type: "string" },
        description: warnings ? "Notes about the result; empty if there are none." : "Empty.",
      },
    },
  };
  const value = { Success: true, Data: isList ? [example] : example, Warnings: [] };
  const failures = Object.entries(FAILURES).map(([status, { name }]) => [
    status,
    { $ref: `#/components/responses/${name}` },
  ]);
  return {
    200: {
      description: "Done.",
      headers: rateLimitHeaders,
      content: { "application/json": { schema, examples: { success: { value } } } },
    },
    ...Object.fromEntries(failures),
  };
}
