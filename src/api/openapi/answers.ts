import type { JsonValue } from "@bufbuild/protobuf";
import type { JsonSchema } from "../json/schema-scalars.ts";
import type { RestBinding } from "../rest/bindings.ts";
import type { AnswerSchemas } from "./answer-schemas.ts";
import { exampleData } from "./examples.ts";

/** The name of the schema that every failure has. */
export const FAILURE = "Failure";

/** The envelope of a failure (contract, section 2.2). */
export const failureSchema: JsonSchema = {
  type: "object",
  description: "The envelope of every failure, whatever its status.",
  required: ["Success", "Data", "Warnings"],
  properties: {
    Success: { type: "boolean", const: false },
    Data: { type: "null" },
    Warnings: {
      type: "array",
      minItems: 1,
      items: { type: "string" },
      description:
        "What went wrong and what to change, for people. Its wording may change; decide by the status.",
    },
  },
};

/** The statuses of failures, what they mean, and what the service says then. */
const FAILURES: Record<string, { name: string; description: string; examples: Record<string, string> }> = {
  400: {
    name: "Refused",
    description: "The request cannot be done as it is. Warnings tells what to change.",
    examples: {
      parameter: "webhookId is required: send a whole number, at most 9223372036854775807",
      unknownWebhook: "there is no webhook 4711; list the webhooks to find its Id",
      http: "url must begin with https://, not http://",
    },
  },
  401: {
    name: "Unauthenticated",
    description: "The header X-Service-Key is missing, or its key is unknown or revoked.",
    examples: {
      missing: "the header X-Service-Key is missing: send your API key in it",
      unknown: "the API key in X-Service-Key is unknown or revoked",
    },
  },
  403: {
    name: "Forbidden",
    description: "The key lacks the operation's permission, or may not subscribe to the event type.",
    examples: {
      permission: "the API key lacks the permission Write_Administrative_Data, which CreateWebhook requires",
      process: "the API key may not subscribe to DocumentCreated, only to OrderDispatched",
    },
  },
  404: {
    name: "UnknownPath",
    description:
      "There is nothing at this path: it is misspelt, or the process that answers only delivers (role worker).",
    examples: {
      misspelt: "unknown path /api/webhooks; /openapi.json lists the API's",
      worker: "unknown path /api/webhook/list; this process only delivers; ask one with the role api",
    },
  },
  429: {
    name: "TooManyRequests",
    description: "Too many requests. Wait as long as Retry-After says, and send it again.",
    examples: { tooMany: "too many requests; wait and send it again" },
  },
  500: {
    name: "Fault",
    description: "Our own fault, or the database is away. The same request may succeed later.",
    examples: {
      database: "the database is away; try again",
      internal: "internal error, in the log under 01a1fcb1-a29f-730e-bb2b-5a149b950abd",
    },
  },
};

/** The components that `describeAnswers` refers to, by name. */
export function failureResponses(): Record<string, JsonSchema> {
  return Object.fromEntries(
    Object.entries(FAILURES).map(([status, { name, description, examples }]) => [
      name,
      {
        description,
        ...(status === "429"
          ? {
              headers: {
                "Retry-After": { description: "Seconds to wait.", schema: { type: "integer", minimum: 0 } },
              },
            }
          : {}),
        content: json(
          { $ref: `#/components/schemas/${FAILURE}` },
          Object.fromEntries(
            Object.entries(examples).map(([key, message]) => [key, { value: failure(message) }]),
          ),
        ),
      },
    ]),
  );
}

/** Every answer that an operation can have, by status. */
export function describeAnswers(binding: RestBinding, schemas: AnswerSchemas): Record<string, JsonSchema> {
  const { data } = binding;
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
      Warnings: { type: "array", items: { type: "string" } },
    },
  };
  const value = { Success: true, Data: isList ? [example] : example, Warnings: [] };
  const failures = Object.entries(FAILURES).map(([status, { name }]) => [
    status,
    { $ref: `#/components/responses/${name}` },
  ]);
  return {
    200: { description: "Done.", content: json(schema, { success: { value } }) },
    ...Object.fromEntries(failures),
  };
}

function json(schema: JsonSchema, examples: JsonSchema): JsonSchema {
  return { "application/json": { schema, examples } };
}

function failure(message: string): JsonValue {
  return { Success: false, Data: null, Warnings: [message] };
}
