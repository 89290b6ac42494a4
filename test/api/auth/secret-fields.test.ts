import type { DescField, DescMessage, DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { restBindings } from "../../../src/api/rest/bindings.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { callableByGet, returnsSecrets } from "../../../src/contract/secret-fields.ts";
import { useApi } from "../../support/test-api.ts";

const METHODS: DescMethod[] = [...SERVICES, SessionService].flatMap(({ methods }) => methods);

const api = await useApi();

/** Every field of a message and of those in it. */
function fieldsOf(message: DescMessage, seen = new Set<DescMessage>()): DescField[] {
  if (seen.has(message)) return [];
  seen.add(message);
  return message.fields.flatMap((field) => [field, ...(field.message ? fieldsOf(field.message, seen) : [])]);
}

test("every field whose name says that it is a secret is marked as one", () => {
  const all = METHODS.flatMap(({ input, output }) => [...fieldsOf(input), ...fieldsOf(output)]);
  const named = all.filter(({ name, message }) => !message && /(^|_)(secret|password)$|^api_key$/.test(name));
  expect(new Set(named.map(String)).size).toBeGreaterThanOrEqual(6);
  for (const field of named) expect(field.proto.options?.debugRedact, String(field)).toBe(true);
});

test("the methods that answer secrets are known", () => {
  expect(METHODS.filter(returnsSecrets).map(({ name }) => name)).toEqual([
    "GetWebhookSecret",
    "RotateWebhookSecret",
    "CreateApiKey",
    "RotateApiKey",
  ]);
});

test("no method that answers a secret can be called by GET, over Connect or REST; those without side effects that answer none can", async () => {
  for (const { method, httpMethod } of restBindings(SERVICES))
    if (httpMethod === "GET") expect(returnsSecrets(method), method.name).toBe(false);
  const id = await api.register();
  const message = encodeURIComponent(JSON.stringify({ webhookId: String(id) }));
  for (const method of METHODS) {
    const url = `${api.url}/${method.parent.typeName}/${method.name}?connect=v1&encoding=json&message=${message}`;
    const answer = await fetch(url, { headers: { "X-Service-Key": api.adminKey } });
    const text = await answer.text();
    expect(text, method.name).not.toContain("whsec_");
    if (method.methodKind !== "unary") continue;
    const { NO_SIDE_EFFECTS } = MethodOptions_IdempotencyLevel;
    expect(callableByGet(method)).toBe(method.idempotency === NO_SIDE_EFFECTS && !returnsSecrets(method));
    if (callableByGet(method)) expect(answer.status, method.name).not.toBe(405);
    else expect([answer.status, answer.headers.get("Allow")], method.name).toEqual([405, "POST"]);
  }
});
