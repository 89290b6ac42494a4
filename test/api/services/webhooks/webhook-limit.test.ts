import { Code } from "@connectrpc/connect";
import { afterAll, beforeEach, expect, test } from "vitest";
import { failure } from "../../../support/failure.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

const limits = { maxWebhooks: 5 };
const api = await startTestApi({ limits });
const other = await startTestApi({ databaseUrl: api.databaseUrl, limits });
afterAll(async () => {
  await other.stop();
  await api.stop();
});
beforeEach(() => api.context.db.raw("truncate webhooks cascade"));

const { webhooks } = api;
const register = (n: number, on: TestApi = api) => on.register({ url: `https://receiver.example/${n}` });
const rest = (n: number) =>
  api.rest("POST", "/api/webhook", { json: { process: 1, url: `https://receiver.example/${n}` } });

test("§4.2.1: when there is room for no more webhooks, another is refused with what to do, and one that is registered is answered", async () => {
  for (let n = 1; n <= limits.maxWebhooks; n += 1) await register(n);
  const { status, envelope } = await rest(6);
  expect(status).toBe(400);
  expect(envelope.Warnings).toEqual([
    expect.stringMatching(/^5 webhooks are registered.*delete unused ones.*MAX_WEBHOOKS$/),
  ]);
  const found = await rest(3);
  expect([found.status, found.envelope.Data.Url]).toEqual([200, "https://receiver.example/3"]);
  // A deleted one makes room.
  const [first] = (await webhooks.listWebhooks({})).webhooks;
  await webhooks.deleteWebhook({ webhookId: first?.id as bigint });
  await register(6);
  await expectRefused(register(7), Code.FailedPrecondition);
});

test("of many registrations at once, over two servers, as many go through as there is room for", async () => {
  const calls = Array.from({ length: 30 }, (_, n) => failure(register(n, n % 2 === 0 ? api : other)));
  const refusals = (await Promise.all(calls)).flatMap((error) => error?.code ?? []);
  expect(refusals).toEqual(Array(25).fill(Code.FailedPrecondition));
  expect((await webhooks.listWebhooks({})).webhooks).toHaveLength(5);
});
