import type { JsonSchema } from "../../src/contract/event-types/schema-scalars.ts";
import { RATE_LIMIT_FIELDS } from "../../src/keys/gate/request-limits.ts";

/** The header of responses to requests that may be retried. */
export const retryAfter: JsonSchema = {
  description: "The delay before a retry, in seconds.",
  schema: { type: "integer", minimum: 0 },
  example: 42,
};

/** Descriptions by the end of the header's name. */
const ABOUT: Record<string, [description: string, schema: JsonSchema, example: string | number]> = {
  Policy: ["The limit: `q` requests in `w` seconds.", { type: "string" }, '"key";q=600;w=60'],
  Limit: ["Requests allowed per minute.", { type: "integer" }, 600],
  Remaining: ["Requests left in this minute.", { type: "integer" }, 599],
  Reset: ["Seconds until the quota resets.", { type: "integer" }, 42],
};
const STANDING: (typeof ABOUT)[string] = [
  "The remaining quota: `r` requests, reset in `t` seconds.",
  { type: "string" },
  '"key";r=599;t=42',
];

/** Descriptions of the rate limit headers, by name. Sent only if keys have a limit. */
export const rateLimitComponents: Record<string, JsonSchema> = Object.fromEntries(
  RATE_LIMIT_FIELDS.map((name) => {
    const [description, schema, example] = ABOUT[name.split("-")[1] ?? ""] ?? STANDING;
    return [name, { description: `${description} Only if keys have a limit.`, schema, example }];
  }),
);

/** References to these headers, for responses. */
export const rateLimitHeaders: Record<string, JsonSchema> = Object.fromEntries(
  RATE_LIMIT_FIELDS.map((name) => [name, { $ref: `#/components/headers/${name}` }]),
);
