import SwaggerParser from "@apidevtools/swagger-parser";
import { getOption } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { Permission, required_permission } from "../../../gen/webhook/v1/options_pb.ts";
import { type RestBinding, restBindings } from "../../../src/api/rest/bindings.ts";
import { SERVICES } from "../../../src/api/routes.ts";
import { ALL_PERMISSIONS } from "../../../src/db/keys/api-keys.ts";
import { described, exampleOf, expectDescribed, validatorAt } from "../../support/described-answers.ts";
import { ONLY, type RestRequest, useApi } from "../../support/test-api.ts";

const api = await useApi();

const bindings = restBindings(SERVICES);
const operationOf = ({ path, httpMethod }: RestBinding) => described.paths[path]?.[httpMethod.toLowerCase()];

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

const LIST = "/api/webhook/list";
const url = "https://receiver.example/examples";
const reader = await api.key({ permissions: ONLY.read });
const oneProcess = await api.key({ allowedProcesses: [1] });
const create = (process: number, address = url) => ({ json: { process, url: address } });
test.each<[response: string, name: string, method: string, path: string, request: RestRequest]>([
  ["Refused", "parameter", "DELETE", "/api/webhook", {}],
  ["Refused", "unknownWebhook", "DELETE", "/api/webhook", { query: { webhookId: "4711" } }],
  ["Refused", "http", "POST", "/api/webhook", create(1, "http://a.example/")],
  ["Unauthenticated", "missing", "GET", LIST, { key: null }],
  [
    "Unauthenticated",
    "authorization",
    "GET",
    LIST,
    { key: null, headers: { Authorization: "Bearer nobody" } },
  ],
  ["Unauthenticated", "unknown", "GET", LIST, { key: "nobody" }],
  ["Unauthenticated", "several", "GET", LIST, { key: "a, b" }],
  ["Forbidden", "permission", "POST", "/api/webhook", { key: reader.secret }],
  ["Forbidden", "process", "POST", "/api/webhook", { key: oneProcess.secret, ...create(2) }],
  ["UnknownPath", "misspelt", "GET", "/api/webhooks", {}],
])("the example %s %s is what the service says", async (response, name, method, path, request) => {
  const { envelope } = await api.rest(method, path, request);
  expect(envelope).toEqual({ Success: false, Data: null, Warnings: [exampleOf(response, name)] });
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
