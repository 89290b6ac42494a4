import { type Corner, corners, json, type Row, typed } from "./corner.ts";

const LIST = "GET /webhook/list";
const MISSING = "the header X-Service-Key is missing: send your API key in it";
const UNKNOWN = "the API key in X-Service-Key is unknown or revoked";
const SEVERAL = "X-Service-Key contains more than one key; send exactly one";
const SCHEME = "X-Service-Key contains a scheme before the key; send only the key";

const keyed = (name: string, key: string, says?: string): Row => [
  name,
  LIST,
  { keys: [`X-Service-Key: ${key}`] },
  says,
];

/** The header of the key. What is wrong with the rest of a request is told to those who may make it, and to no one else. */
export const keyCorners: Corner[] = [
  ...corners(200, [
    ...["X-Service-Key", "x-service-key", "X-SERVICE-KEY", "x-Service-kEY"].map(
      (name): Row => [`the header spelt ${name}`, LIST, { keys: [`${name}: {key}`] }],
    ),
    keyed("spaces around the key", "\t {key}  "),
    ["the key, and another in Authorization", LIST, { head: ["Authorization: Bearer other"] }],
  ]),
  ...corners(401, [
    ["no key", LIST, { keys: [] }, MISSING],
    keyed("an empty key", "", MISSING),
    ["the key in the query", `${LIST}?X-Service-Key={key}`, { keys: [] }, MISSING],
    ["the key as a bearer token", LIST, { keys: ["Authorization: Bearer {key}"] }, MISSING],
    keyed("an unknown key", "nobody", UNKNOWN),
    keyed("the key in upper case", "{KEY}", UNKNOWN),
    keyed("a key of 8,000 characters", "k".repeat(8_000), UNKNOWN),
    keyed("a key that is not ASCII", "\u00e9\u00ff", UNKNOWN),
    keyed("SQL for a key", "' or 1=1 --", UNKNOWN),
    ["two keys", LIST, { keys: ["X-Service-Key: {key}", "X-Service-Key: other"] }, SEVERAL],
    ["the key twice", LIST, { keys: ["X-Service-Key: {key}", "x-service-key: {key}"] }, SEVERAL],
    keyed("two keys with a comma", "{key}, {key}", SEVERAL),
    keyed("a scheme before the key", "Bearer {key}", SCHEME),
    ["no key and no parameters", "POST /webhook", { keys: [] }, MISSING],
    ["no key and a body that is not JSON", "POST /webhook", { ...json("{"), keys: [] }, MISSING],
    [
      "no key and too large a body",
      "POST /webhook",
      { ...json(`"${"x".repeat(70_000)}"`), keys: [] },
      MISSING,
    ],
    [
      "an unknown key and another content type",
      "POST /webhook",
      { ...typed("text/xml", "<a/>"), keys: ["X-Service-Key: nobody"] },
      UNKNOWN,
    ],
    ["no key and no number", "DELETE /webhook?webhookId=one", { keys: [] }, MISSING],
  ]),
];
