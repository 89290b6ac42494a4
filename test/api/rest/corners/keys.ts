import type { Corner } from "./corner.ts";

const LIST = { method: "GET", path: "/webhook/list" };
const sent =
  (...head: ((key: string) => string)[]) =>
  ({ key }: { key: string }) => ({ head: head.map((line) => line(key)) });
const MISSING = "the header X-Service-Key is missing: send your API key in it";
const UNKNOWN = "the API key in X-Service-Key is unknown or revoked";
const SEVERAL = "X-Service-Key contains more than one key; send exactly one";

/** The header of the key. What is wrong with the rest of a request is told to those who may make it, and to no one else. */
export const keyCorners: Corner[] = [
  ...["X-Service-Key", "x-service-key", "X-SERVICE-KEY", "x-Service-kEY"].map((name) => ({
    ...LIST,
    name: `with the header spelt ${name}`,
    bytes: sent((key) => `${name}: ${key}`),
    status: 200,
  })),
  {
    ...LIST,
    name: "with spaces around the key",
    bytes: sent((key) => `X-Service-Key: \t ${key}  `),
    status: 200,
  },
  { ...LIST, name: "without a key", request: () => ({ key: null }), status: 401, says: MISSING },
  { ...LIST, name: "with an empty key", bytes: sent(() => "X-Service-Key:"), status: 401, says: MISSING },
  {
    ...LIST,
    name: "with the key in the query",
    request: ({ key }) => ({ key: null, query: { "X-Service-Key": key } }),
    status: 401,
    says: MISSING,
  },
  {
    ...LIST,
    name: "with the key as a bearer token",
    request: ({ key }) => ({ key: null, headers: { Authorization: `Bearer ${key}` } }),
    status: 401,
    says: MISSING,
  },
  { ...LIST, name: "with an unknown key", request: () => ({ key: "nobody" }), status: 401, says: UNKNOWN },
  {
    ...LIST,
    name: "with the key in another case",
    request: ({ key }) => ({ key: key.toUpperCase() === key ? key.toLowerCase() : key.toUpperCase() }),
    status: 401,
    says: UNKNOWN,
  },
  {
    ...LIST,
    name: "with a key of 8,000 characters",
    request: () => ({ key: "k".repeat(8_000) }),
    status: 401,
    says: UNKNOWN,
  },
  {
    ...LIST,
    name: "with a key that is not ASCII",
    bytes: sent(() => "X-Service-Key: \u00e9\u00ff"),
    status: 401,
    says: UNKNOWN,
  },
  {
    ...LIST,
    name: "with SQL for a key",
    request: () => ({ key: "' or 1=1 --" }),
    status: 401,
    says: UNKNOWN,
  },
  {
    ...LIST,
    name: "with the header twice",
    bytes: sent(
      (key) => `X-Service-Key: ${key}`,
      () => "X-Service-Key: other",
    ),
    status: 401,
    says: SEVERAL,
  },
  {
    ...LIST,
    name: "with the header twice, the same",
    bytes: sent(
      (key) => `X-Service-Key: ${key}`,
      (key) => `x-service-key: ${key}`,
    ),
    status: 401,
    says: SEVERAL,
  },
  {
    ...LIST,
    name: "with two keys and a comma between them",
    request: ({ key }) => ({ key: `${key}, ${key}` }),
    status: 401,
    says: SEVERAL,
  },
  {
    method: "POST",
    path: "/webhook",
    name: "without a key and without parameters",
    request: () => ({ key: null }),
    status: 401,
    says: MISSING,
  },
  {
    method: "POST",
    path: "/webhook",
    name: "without a key and with a body that is not JSON",
    request: () => ({ key: null, raw: { body: "{", type: "application/json" } }),
    status: 401,
    says: MISSING,
  },
  {
    method: "POST",
    path: "/webhook",
    name: "without a key and with a body that is too large",
    request: () => ({ key: null, json: "x".repeat(70_000) }),
    status: 401,
    says: MISSING,
  },
  {
    method: "POST",
    path: "/webhook",
    name: "with an unknown key and of another content type",
    request: () => ({ key: "nobody", raw: { body: "<a/>", type: "text/xml" } }),
    status: 401,
    says: UNKNOWN,
  },
  {
    method: "DELETE",
    path: "/webhook",
    name: "without a key and of no number",
    request: () => ({ key: null, query: { webhookId: "one" } }),
    status: 401,
    says: MISSING,
  },
];
