import SwaggerParser from "@apidevtools/swagger-parser";
import { getOption } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Permission, required_permission } from "../../../gen/webhook/v1/options_pb.ts";
import { type RestBinding, restBindings } from "../../../src/api/rest/bindings.ts";
import { SERVICES } from "../../../src/api/routes.ts";
import { ALL_PERMISSIONS } from "../../../src/db/keys/api-keys.ts";
import { described, expectDescribed, validatorAt } from "../../support/described-answers.ts";
import { type RestRequest, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const bindings = restBindings(SERVICES);
const operationOf = ({ path, httpMethod }: RestBinding) => described.paths[path]?.[httpMethod.toLowerCase()];
const examplesOf = (response: string): Record<string, { value: { Warnings: string[] } }> =>
  // biome-ignore lint/suspicious/noExplicitAny: a document, of which only this is looked at
  (described.components.responses as any)[response].content["application/json"].examples;

test("the description is served to everyone, and is the one that all answers of these tests are held against", async () => {
  const answer = await fetch(`${api.url}/openapi.json`);
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toBe("application/json; charset=utf-8");
  expect(await answer.json()).toEqual(JSON.parse(JSON.stringify(described)));
});

test("the description tells receivers the configured DELIVERY_TIMEOUT", async () => {
  const text = await (await fetch(`${api.url}/openapi.json`)).text();
  const { OrderDispatched } = (JSON.parse(text) as typeof described).webhooks;
  expect(OrderDispatched?.post).toMatchObject({
    description: expect.stringContaining("Respond with any 2xx within 7.5 seconds."),
    responses: { "2XX": { description: expect.stringContaining("within 7.5 seconds") } },
  });
  expect(text).not.toContain("15 s");
});

test("the description names the HMAC and the public-key signature of a delivery", async () => {
  const { webhooks } = JSON.parse(await (await fetch(`${api.url}/openapi.json`)).text());
  const signature = {
    name: "webhook-signature",
    description: expect.stringMatching(/`v1,` for HMAC-SHA256.*`v1a,` for ed25519/),
  };
  expect(webhooks.OrderDispatched.post.parameters).toContainEqual(expect.objectContaining(signature));
});

test("the description is valid OpenAPI 3.1, and refers to nothing outside itself", async () => {
  // It is changed while it is read.
  const copy = JSON.parse(JSON.stringify(described));
  await expect(SwaggerParser.validate(copy, { resolve: { external: false } })).resolves.toBeDefined();
});

test("§9.1: every operation is described under each of its paths, under a name of its own", () => {
  expect(bindings.map(({ path }) => path)).toContain("/api/v2/webhook/list");
  for (const binding of bindings) expect(operationOf(binding), binding.path).toBeDefined();
  const names = bindings.map((binding) => operationOf(binding)?.operationId);
  expect(new Set(names).size).toBe(bindings.length);
  const operations = Object.values(described.paths).flatMap((path) => Object.keys(path));
  expect(operations).toHaveLength(bindings.length);
});

test("§5.2: the permission that an operation is described with is the one that it asks for", async () => {
  for (const permission of ALL_PERMISSIONS) {
    const { secret } = await api.key({ permissions: [permission] });
    for (const binding of bindings) {
      const { status } = await api.rest(binding.httpMethod, binding.path, { key: secret });
      const needed = getOption(binding.method, required_permission);
      expect([binding.path, status === 403]).toEqual([binding.path, needed !== permission]);
    }
  }
  const permissions = new Set(bindings.map((binding) => operationOf(binding)?.["x-required-permission"]));
  expect(permissions).toContain("Read_Administrative_Data");
  expect(permissions).toContain("Write_Administrative_Data");
  expect(permissions).not.toContain(String(Permission.UNSPECIFIED));
});

test("every operation tells its permission, its security and every status it can have", () => {
  for (const binding of bindings) {
    const operation = operationOf(binding);
    expect(operation?.description).toContain(`\`${operation?.["x-required-permission"]}\``);
    expect(operation?.security).toEqual([{ ServiceKey: [] }]);
    expect(Object.keys(operation?.responses ?? {})).toEqual([
      "200",
      "400",
      "401",
      "403",
      "404",
      "429",
      "500",
      "503",
    ]);
  }
});

describe("every example is as its schema says:", () => {
  interface Media {
    schema: unknown;
    example?: unknown;
    examples?: Record<string, { value: unknown }>;
  }
  /** Everything in the document that has a schema and examples, with its place. */
  function mediaIn(part: unknown, path: string[]): [string[], Media][] {
    if (typeof part !== "object" || part === null) return [];
    const found: [string[], Media][] = "schema" in part ? [[path, part as Media]] : [];
    const within = Object.entries(part).flatMap(([name, value]) => mediaIn(value, [...path, name]));
    return [...found, ...within];
  }
  const withExamples = mediaIn(described, []).filter(([, media]) => media.example ?? media.examples);

  test.each(withExamples.map(([path, media]) => [path.join(" "), path, media] as const))(
    "%s",
    (_name, path, { example, examples = {} }) => {
      const validate = validatorAt(...path, "schema");
      const values = Object.values(examples).map(({ value }) => value);
      for (const value of example === undefined ? values : [example, ...values]) {
        validate(value);
        expect(validate.errors ?? [], JSON.stringify(value)).toEqual([]);
      }
    },
  );
});

const url = "https://receiver.example/examples";
const failures: [string, string, string, string, () => RestRequest | Promise<RestRequest>][] = [
  ["Refused", "parameter", "DELETE", "/api/webhook", () => ({})],
  ["Refused", "unknownWebhook", "DELETE", "/api/webhook", () => ({ query: { webhookId: "4711" } })],
  ["Refused", "http", "POST", "/api/webhook", () => ({ json: { process: 1, url: "http://a.example/" } })],
  ["Unauthenticated", "missing", "GET", "/api/webhook/list", () => ({ key: null })],
  [
    "Unauthenticated",
    "authorization",
    "GET",
    "/api/webhook/list",
    () => ({ key: null, headers: { Authorization: "Bearer nobody" } }),
  ],
  ["Unauthenticated", "unknown", "GET", "/api/webhook/list", () => ({ key: "nobody" })],
  ["Unauthenticated", "several", "GET", "/api/webhook/list", () => ({ key: "a, b" })],
  [
    "Forbidden",
    "permission",
    "POST",
    "/api/webhook",
    async () => ({ key: (await api.key({ permissions: [Permission.READ_ADMINISTRATIVE_DATA] })).secret }),
  ],
  [
    "Forbidden",
    "process",
    "POST",
    "/api/webhook",
    async () => ({ key: (await api.key({ allowedProcesses: [1] })).secret, json: { process: 2, url } }),
  ],
  ["UnknownPath", "misspelt", "GET", "/api/webhooks", () => ({})],
];
test.each(failures)(
  "the example %s %s is what the service says",
  async (response, name, method, path, request) => {
    const { envelope } = await api.rest(method, path, await request());
    expect(envelope).toEqual(examplesOf(response)[name]?.value);
  },
);

test("the examples of 429 are what the service says, but for its numbers, and their headers are described", async () => {
  const limited = await startTestApi({ limits: { requestsPerMinute: 1, wrongKeysPerMinute: 1 } });
  const wordsOf = (text: string | undefined) => text?.replaceAll(/\d+/g, "#");
  try {
    for (const [name, key] of [
      ["requests", limited.adminKey],
      ["wrongKeys", "nobody"],
    ] as const) {
      await limited.rest("GET", "/api/webhook/list", { key });
      const { status, envelope } = await limited.rest("GET", "/api/webhook/list", { key });
      expect(status).toBe(429);
      const example = examplesOf("TooManyRequests")[name]?.value.Warnings[0];
      expect(wordsOf(envelope.Warnings[0])).toBe(wordsOf(example));
    }
  } finally {
    await limited.stop();
  }
});

test("the example of a process that only delivers is what it says", async () => {
  const worker = await startTestApi({ services: false });
  try {
    const { envelope } = await worker.rest("GET", "/api/webhook/list");
    expect(envelope).toEqual(examplesOf("UnknownPath").worker?.value);
    expect((await fetch(`${worker.url}/openapi.json`)).status).toBe(404);
  } finally {
    await worker.stop();
  }
});

const headers = (all: Record<string, string>) => (name: string) => all[name];

test("an answer off its description is found", async () => {
  const { text } = await api.rest("POST", "/api/webhook", { json: { process: 1, url } });
  const answer = {
    method: "POST",
    path: "/api/webhook",
    status: 200,
    header: headers({ "Content-Type": "application/json; charset=utf-8" }),
    text,
  };
  const offs = [
    { status: 201 },
    { status: 400 },
    { header: headers({ "Content-Type": "text/html" }) },
    { header: headers({ "Content-Type": "application/json; charset=utf-8", "Retry-After": "1" }) },
    { header: headers({ "Content-Type": "application/json; charset=utf-8", "RateLimit-Limit": "x" }) },
    { method: "PUT" },
    { text: text.replace('"Warnings":[]', '"Warnings":null') },
    { text: text.replace('"Url"', '"URL"') },
    { text: text.replace('"Application":null', '"Application":null,"More":1') },
    { text: text.replace(/"Created":"([^"]*)"/, '"Created":"$1Z"') },
    { text: text.replace("OrderDispatched", "OrderReturned") },
    { text: text.replace(/"Id":(\d+)/, '"Id":"$1"') },
  ];
  expectDescribed(answer);
  for (const off of offs) {
    if ("text" in off) expect(off.text).not.toBe(text);
    expect(() => expectDescribed({ ...answer, ...off }), JSON.stringify(off)).toThrow();
  }
});
