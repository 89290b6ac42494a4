import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

/** What is answered, of which only JSON is known. */
interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the method answers
  body: any;
}

async function call(method: string, message: object, byGet = false): Promise<Answer> {
  const url = `${api.url}/webhook.v1.${method}`;
  const headers = { "X-Service-Key": api.adminKey, "Content-Type": "application/json" };
  const query = new URLSearchParams({ connect: "v1", encoding: "json", message: JSON.stringify(message) });
  const answer = byGet
    ? await fetch(`${url}?${query}`, { headers })
    : await fetch(url, { method: "POST", headers, body: JSON.stringify(message) });
  return { status: answer.status, body: await answer.json() };
}

const misspelt: [string, string, object, string][] = [
  [
    "the event types of a key",
    "ApiKeyService/CreateApiKey",
    { name: "k", permissions: ["PERMISSION_READ_ADMINISTRATIVE_DATA"], allowedProcess: [1] },
    'has no field "allowedProcess"',
  ],
  [
    "one event type of a key",
    "ApiKeyService/CreateApiKey",
    { name: "k", permissions: ["PERMISSION_READ_ADMINISTRATIVE_DATA"], allowedProcesses: ["ORDER"] },
    '"ORDER"',
  ],
  ["the filter of what is sent again", "DeliveryService/SendAgainMany", { webhookID: "1" }, "webhookID"],
  ["a state in a filter", "DeliveryService/ListDeliveries", { states: ["FAILED"] }, '"FAILED"'],
  ["the time that an old secret works", "ApiKeyService/RotateApiKey", { grace: "3600s" }, "grace"],
];

test.each(misspelt)("%s, misspelt in JSON, is refused and not left out", async (_, method, message, says) => {
  for (const byGet of method.includes("/List") ? [false, true] : [false]) {
    const { status, body } = await call(method, message, byGet);
    expect([status, body]).toMatchObject([
      400,
      {
        code: "invalid_argument",
        message: expect.stringContaining(says),
        details: [{ debug: { reason: "REQUEST_INVALID" } }],
      },
    ]);
  }
  expect(await api.context.db("api_keys").where("name", "k")).toEqual([]);
});

test("names in JSON may be those of the proto file, and numbers stand for enums", async () => {
  const message = { process: 1, url: "https://receiver.example/proto-names" };
  const { body } = await call("WebhookService/CreateWebhook", message);
  const deleted = await call("WebhookService/DeleteWebhook", { webhook_id: body.webhook.id });
  expect(deleted.body.webhook.id).toBe(body.webhook.id);
});
