import type { JsonValue } from "@bufbuild/protobuf";
import type { JsonSchema } from "../../src/contract/event-types/schema-scalars.ts";
import { rateLimitHeaders, retryAfter } from "./headers.ts";

/** The name of the schema of all failures. */
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

/** A kind of failure, by status. */
interface FailureKind {
  /** The name of its component. */
  name: string;
  description: string;
  /** Example messages. */
  examples: Record<string, string>;
  headers?: Record<string, JsonSchema>;
}

/** Failures by status. */
export const FAILURES: Record<string, FailureKind> = {
  400: {
    name: "Refused",
    description: "The request cannot be done as it is. Warnings tells what to change.",
    examples: {
      parameter: "webhookId is required; send a whole number, at most 9223372036854775807",
      unknownWebhook: "there is no webhook 4711; list the webhooks to find its Id",
      http: "url begins with http://; only https:// is allowed",
    },
    headers: rateLimitHeaders,
  },
  401: {
    name: "Unauthenticated",
    description: "The header X-Service-Key is missing, or its key is unknown or revoked.",
    examples: {
      missing: "the header X-Service-Key is missing: send your API key in it",
      authorization:
        "the header X-Service-Key is missing: send your API key in it, not in Authorization, which this service does not read",
      unknown: "the API key in X-Service-Key is unknown or revoked",
      several: "X-Service-Key contains more than one key; send exactly one",
    },
  },
  403: {
    name: "Forbidden",
    description: "The key lacks the operation's permission, or may not subscribe to the event type.",
    examples: {
      permission: "the API key lacks the permission Write_Administrative_Data, which CreateWebhook requires",
      process: "the API key may not subscribe to DocumentCreated, only to OrderDispatched",
    },
    headers: rateLimitHeaders,
  },
  404: {
    name: "UnknownPath",
    description:
      "There is nothing at this path: it is misspelt, or the process that answers only delivers (role worker).",
    examples: {
      misspelt: "no such path: /api/webhooks; all paths: /openapi.json",
      worker:
        "no such path: /api/webhook/list; this process only delivers; call a process with ROLE=api or ROLE=all",
    },
  },
  413: {
    name: "TooLarge",
    description: "The body has more than 65,536 bytes.",
    examples: { body: "the body is too large; send at most 65536 bytes" },
    headers: rateLimitHeaders,
  },
  429: {
    name: "TooManyRequests",
    description:
      "The key has used its requests of this minute, or too many wrong keys came from the caller's address. The same request may succeed after Retry-After.",
    examples: {
      requests: "the API key has used its 600 requests of this minute; retry in 42 s",
      wrongKeys:
        "too many wrong API keys came from your address, so your key was not checked; verify it and retry in 42 s",
    },
    headers: { "Retry-After": { ...retryAfter, required: true }, ...rateLimitHeaders },
  },
  500: {
    name: "Fault",
    description: "Server error. Warnings holds a reference id to look up in the service's log.",
    examples: {
      internal: "internal error; reference in the service's log: 01a1fcb1-a29f-730e-bb2b-5a149b950abd",
    },
    headers: rateLimitHeaders,
  },
  503: {
    name: "Unavailable",
    description:
      "The database does not answer, or the service is stopping. The same request may succeed after Retry-After.",
    examples: {
      database: "the database is unavailable; retry",
      stopping: "the service is stopping; retry",
    },
    headers: { "Retry-After": { ...retryAfter, required: true }, ...rateLimitHeaders },
  },
};

/** The components of all failures, by name. */
export function failureResponses(): Record<string, JsonSchema> {
  return Object.fromEntries(
    Object.values(FAILURES).map(({ name, description, examples, headers = {} }) => [
      name,
      {
        description,
        headers,
        content: {
          "application/json": {
            schema: { $ref: `#/components/schemas/${FAILURE}` },
            examples: Object.fromEntries(
              Object.entries(examples).map(([key, message]) => [key, { value: failure(message) }]),
            ),
          },
        },
      },
    ]),
  );
}

function failure(message: string): JsonValue {
  return { Success: false, Data: null, Warnings: [message] };
}
