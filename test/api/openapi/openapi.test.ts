import SwaggerParser from "@apidevtools/swagger-parser";
import { expect, test } from "vitest";
import { type RestBinding, restBindings } from "../../../src/api/rest/bindings.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { permissionName } from "../../../src/contract/permissions.ts";
import { ALL_PERMISSIONS } from "../../../src/keys/api-keys.ts";
import { described, exampleOf, expectDescribed, validatorAt } from "../../support/described-answers.ts";
import { ONLY, type RestRequest, useApi } from "../../support/test-api.ts";

const api = await useApi();

const bindings = restBindings(SERVICES);
const operationOf = ({ path, httpMethod }: RestBinding) => described.paths[path]?.[httpMethod.toLowerCase()];

test("the description is served to everyone, and all answers in these tests are checked against it", async () => {
  const answer = await fetch(`${api.url}/openapi.json`);
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toBe("application/json; charset=utf-8");
  expect(await answer.json()).toEqual(described);
});

test("the description tells receivers the configured DELIVERY_TIMEOUT, and both signatures of a delivery", () => {
  const { OrderDispatched } = described.webhooks;
  expect(OrderDispatched?.post).toMatchObject({
    description: expect.stringContaining("Respond with any 2xx within 7.5 seconds."),
    responses: { "2XX": { description: expect.stringContaining("within 7.5 seconds") } },
  });
  expect(JSON.stringify(described)).not.toContain("15 s");
  const description = expect.stringMatching(/`v1,` for HMAC-SHA256.*`v1a,` for ed25519/);
  const signature = expect.objectContaining({ name: "webhook-signature", description });
  expect(OrderDispatched?.post).toMatchObject({ parameters: expect.arrayContaining([signature]) });
});

test("the description is valid OpenAPI 3.1, and refers to nothing outside itself", async () => {
  // It is changed while it is read.
  const copy = JSON.parse(JSON.stringify(described));
  await expect(SwaggerParser.validate(copy, { resolve: { external: false } })).resolves.toBeDefined();
});

test("§9.1: every operation is described under each of its paths, with its permission, security and statuses", () => {
  expect(bindings.map(({ path }) => path)).toContain("/api/v2/webhook/list");
  for (const binding of bindings) {
    const operation = operationOf(binding);
    expect(operation?.description, binding.path).toContain(`\`${operation?.["x-required-permission"]}\``);
    expect(operation?.security).toEqual([{ ServiceKey: [] }]);
    expect(Object.keys(operation?.responses ?? {}).join()).toBe("200,400,401,403,404,413,429,500,503");
  }
  // Each operation has a different name, and no other operation is described.
  const names = Object.values(described.paths).flatMap((path) =>
    Object.values(path).map(({ operationId }) => operationId),
  );
  expect([names.length, new Set(names).size]).toEqual([bindings.length, bindings.length]);
});

test("§5.2: each operation requires the permission of its description", async () => {
  for (const permission of ALL_PERMISSIONS) {
    const { secret } = await api.key({ permissions: [permission] });
    for (const binding of bindings) {
      const { status } = await api.rest(binding.httpMethod, binding.path, { key: secret });
      const asked = operationOf(binding)?.["x-required-permission"];
      expect([binding.path, status === 403]).toEqual([binding.path, asked !== permissionName(permission)]);
    }
  }
});

test("every example is as its schema says", () => {
  let checked = 0;
  /** Checks the examples of everything in a part of the document that has a schema. */
  function checkExamples(part: unknown, path: string[]): void {
    if (typeof part !== "object" || part === null) return;
    for (const [name, value] of Object.entries(part)) checkExamples(value, [...path, name]);
    if (!("schema" in part)) return;
    const { example, examples = {} } = part as {
      example?: unknown;
      examples?: Record<string, { value: unknown }>;
    };
    const validate = validatorAt(...path, "schema");
    for (const value of [{ value: example }, ...Object.values(examples)].map(({ value }) => value)) {
      if (value === undefined) continue;
      checked += 1;
      validate(value);
      expect(validate.errors ?? [], `${path.join(" ")}: ${JSON.stringify(value)}`).toEqual([]);
    }
  }
  checkExamples(described, []);
  expect(checked).toBeGreaterThan(20);
});

const LIST = "/api/webhook/list";
const BEARER = { Authorization: "Bearer nobody" };
const url = "https://receiver.example/examples";
const reader = await api.key({ permissions: ONLY.read });
const oneProcess = await api.key({ allowedProcesses: [1] });
const create = (process: number, address = url) => ({ json: { process, url: address } });
test.each<[response: string, name: string, method: string, path: string, request: RestRequest]>([
  ["Refused", "parameter", "DELETE", "/api/webhook", {}],
  ["Refused", "unknownWebhook", "DELETE", "/api/webhook", { query: { webhookId: "4711" } }],
  ["Refused", "http", "POST", "/api/webhook", create(1, "http://a.example/")],
  ["Unauthenticated", "missing", "GET", LIST, { key: null }],
  ["Unauthenticated", "authorization", "GET", LIST, { key: null, headers: BEARER }],
  ["Unauthenticated", "unknown", "GET", LIST, { key: "nobody" }],
  ["Unauthenticated", "several", "GET", LIST, { key: "a, b" }],
  ["Forbidden", "permission", "POST", "/api/webhook", { key: reader.secret }],
  ["Forbidden", "process", "POST", "/api/webhook", { key: oneProcess.secret, ...create(2) }],
  ["UnknownPath", "misspelt", "GET", "/api/webhooks", {}],
])("the example %s %s is what the service says", async (response, name, method, path, request) => {
  const { envelope } = await api.rest(method, path, request);
  expect(envelope).toEqual({ Success: false, Data: null, Warnings: [exampleOf(response, name)] });
});

test("an answer off its description is found", async () => {
  const { text } = await api.rest("POST", "/api/webhook", { json: { process: 1, url } });
  const typed = (type: string) => ({
    header: (name: string) => (name === "Content-Type" ? type : undefined),
  });
  const json = typed("application/json; charset=utf-8");
  const answer = { method: "POST", path: "/api/webhook", status: 200, text, ...json };
  const offs = [
    { status: 201 },
    { status: 400 },
    typed("text/html"),
    { text: text.replace('"Application":null', '"Application":null,"More":1') },
    { text: text.replace(/"Created":"([^"]*)"/, '"Created":"$1Z"') },
    { text: text.replace(/"Id":(\d+)/, '"Id":"$1"') },
  ];
  expectDescribed(answer);
  for (const off of offs) {
    expect(() => expectDescribed({ ...answer, ...off }), JSON.stringify(off)).toThrow();
  }
});
