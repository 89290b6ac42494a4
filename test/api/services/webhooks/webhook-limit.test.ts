import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

const MAX = 5;
let api: TestApi;
let other: TestApi;
let webhooks: Client<typeof WebhookService>;
beforeAll(async () => {
  api = await startTestApi({ limits: { maxWebhooks: MAX } });
  other = await startTestApi({ databaseUrl: api.databaseUrl, limits: { maxWebhooks: MAX } });
  webhooks = createClient(WebhookService, grpc(api));
});
beforeEach(() => api.context.db.raw("truncate webhooks cascade"));
afterAll(async () => {
  await other.stop();
  await api.stop();
});

const register = (n: number, on: TestApi = api) =>
  createClient(WebhookService, grpc(on)).createWebhook({ process: 1, url: `https://receiver.example/${n}` });
const fill = async () => {
  for (let n = 1; n <= MAX; n += 1) await register(n);
};

test("when as many webhooks are registered as there may be, another is refused with what to do", async () => {
  await fill();
  const { status, envelope } = await api.rest("POST", "/api/webhook", {
    json: { process: 1, url: "https://receiver.example/6" },
  });
  expect(status).toBe(400);
  expect(envelope.Warnings).toEqual([
    expect.stringMatching(/^5 webhooks are registered.*delete unused ones.*MAX_WEBHOOKS$/),
  ]);
  expect((await failure(register(6)))?.code).toBe(Code.FailedPrecondition);
});

test("§4.2.1: one that is registered already is still answered when there is room for no more", async () => {
  await fill();
  const { status, envelope } = await api.rest("POST", "/api/webhook", {
    json: { process: 1, url: "https://receiver.example/3" },
  });
  expect([status, envelope.Data.Url]).toEqual([200, "https://receiver.example/3"]);
});

test("a deleted webhook makes room for another", async () => {
  await fill();
  const [first] = (await webhooks.listWebhooks({})).webhooks;
  await webhooks.deleteWebhook({ webhookId: first?.id as bigint });
  await register(6);
  expect((await failure(register(7)))?.code).toBe(Code.FailedPrecondition);
});

test("of many registrations at once, over two servers, as many go through as there is room for", async () => {
  const calls = Array.from({ length: 30 }, (_, n) => failure(register(n, n % 2 === 0 ? api : other)));
  const outcomes = await Promise.all(calls);
  expect(outcomes.filter((outcome) => outcome === undefined)).toHaveLength(MAX);
  expect(new Set(outcomes.filter((outcome) => outcome !== undefined).map(({ code }) => code))).toEqual(
    new Set([Code.FailedPrecondition]),
  );
  expect((await webhooks.listWebhooks({})).webhooks).toHaveLength(MAX);
});
