import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { grpc, PROTOCOLS } from "../../support/clients.ts";
import { lock, orderEvent, refused, waitingQueries } from "../../support/grpc-calls.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

describe.each(PROTOCOLS)("over %s", (_name, transport) => {
  test("a call past its deadline ends, and so does what it asked of the database", async () => {
    const release = await lock(api, "webhooks");
    onTestFinished(release);
    const webhooks = createClient(WebhookService, transport(api));
    const error = await refused(webhooks.listWebhooks({}, { timeoutMs: 300 }));
    expect(error.code).toBe(Code.DeadlineExceeded);
    await expect.poll(() => waitingQueries(api)).toBe(0);
  });

  test("a call whose caller goes away is given up in the database too", async () => {
    const release = await lock(api, "webhooks");
    onTestFinished(release);
    const gone = new AbortController();
    const call = refused(
      createClient(WebhookService, transport(api)).listWebhooks({}, { signal: gone.signal }),
    );
    await expect.poll(() => waitingQueries(api)).toBe(1);
    gone.abort();
    expect((await call).code).toBe(Code.Canceled);
    await expect.poll(() => waitingQueries(api)).toBe(0);
  });
});

test("what one publisher's deadline ends goes on for the others of its group", async () => {
  const release = await lock(api, "events");
  const events = createClient(EventService, grpc(api));
  // Both statements that may be under way wait; what comes now shares the next one.
  const first = [events.publishEvent(orderEvent()), events.publishEvent(orderEvent())];
  await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
  const hasty = orderEvent();
  const patient = orderEvent();
  // Long enough to reach the service before it ends, on a busy machine too.
  const ended = refused(events.publishEvent(hasty, { timeoutMs: 1_000 }));
  const stored = events.publishEvent(patient);
  expect((await ended).code).toBe(Code.DeadlineExceeded);
  await release();
  expect((await stored).duplicate).toBe(false);
  await Promise.all(first);
  // It was stored all the same, so the same call again is a duplicate.
  expect((await events.publishEvent(hasty)).duplicate).toBe(true);
});

test("what one reader's deadline ends goes on for the others who share the reading", async () => {
  const release = await lock(api, "queue");
  onTestFinished(release);
  const stats = createClient(StatsService, grpc(api));
  const ended = refused(stats.getOverview({}, { timeoutMs: 500 }));
  await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
  const shared = stats.getOverview({});
  expect((await ended).code).toBe(Code.DeadlineExceeded);
  await release();
  expect((await shared).overview).toBeDefined();
});

test("the server itself ends a call whose client waits on, with DEADLINE_EXCEEDED and a reason", async () => {
  const release = await lock(api, "webhooks");
  onTestFinished(release);
  const answer = await fetch(`${api.url}/webhook.v1.WebhookService/ListWebhooks`, {
    method: "POST",
    headers: {
      "X-Service-Key": api.adminKey,
      "Content-Type": "application/json",
      "Connect-Timeout-Ms": "200",
    },
    body: "{}",
  });
  const { code, details } = (await answer.json()) as { code: string; details: { debug: unknown }[] };
  expect([code, details[0]?.debug]).toMatchObject(["deadline_exceeded", { reason: "DEADLINE_EXCEEDED" }]);
});

test("a stream past its deadline ends with DEADLINE_EXCEEDED, though it would wait for ever", async () => {
  const questions = async function* () {
    yield { messageRequest: { case: "listServices" as const, value: "" } };
    await new Promise<never>(() => {});
  };
  const reflection = createClient(ServerReflection, grpc(api));
  const answers: unknown[] = [];
  const ended = await refused(
    (async () => {
      for await (const answer of reflection.serverReflectionInfo(questions(), { timeoutMs: 2_000 }))
        answers.push(answer);
    })(),
  );
  expect([ended.code, answers.length]).toEqual([Code.DeadlineExceeded, 1]);
});

test("a deadline further away than any timer reaches is no deadline", async () => {
  const webhooks = createClient(WebhookService, grpc(api));
  const headers = { "grpc-timeout": "99999999H" };
  expect((await webhooks.listWebhooks({}, { headers })).webhooks).toEqual([]);
});
