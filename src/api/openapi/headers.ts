import type { JsonSchema } from "../json/schema-scalars.ts";
import { RATE_LIMIT_FIELDS } from "../limits/request-limits.ts";

/** The header of answers to requests that may succeed later. */
export const retryAfter: JsonSchema = {
  description: "How many seconds to wait.",
  schema: { type: "integer", minimum: 0 },
  example: 42,
};

/** What they say, by the end of their name. */
const ABOUT: Record<string, [description: string, schema: JsonSchema, example: string | number]> = {
  Policy: ["The limit: `q` requests in `w` seconds.", { type: "string" }, '"key";q=600;w=60'],
  Limit: ["Requests of a whole minute.", { type: "integer" }, 600],
  Remaining: ["Requests left of it.", { type: "integer" }, 599],
  Reset: ["Seconds until the next minute begins.", { type: "integer" }, 42],
};
const STANDING: (typeof ABOUT)[string] = [
  "How the key stands: `r` requests left, `t` seconds until the next minute.",
  { type: "string" },
  '"key";r=599;t=42',
];

/** What is said of the headers that tell a key's limit, by name. There are none where keys have no limit. */
export const rateLimitComponents: Record<string, JsonSchema> = Object.fromEntries(
  RATE_LIMIT_FIELDS.map((name) => {
    const [description, schema, example] = ABOUT[name.split("-")[1] ?? ""] ?? STANDING;
    return [name, { description: `${description} Only where keys have a limit.`, schema, example }];
  }),
);

/** The same headers, as answers refer to them. */
export const rateLimitHeaders: Record<string, JsonSchema> = Object.fromEntries(
  RATE_LIMIT_FIELDS.map((name) => [name, { $ref: `#/components/headers/${name}` }]),
);
