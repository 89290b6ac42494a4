import { Code, createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { Health } from "../../../gen/health/v1/health_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { PROTOCOLS } from "../../support/clients.ts";
import { lock, orderEvent, refused, waitingQueries } from "../../support/grpc-calls.ts";
import { useApi } from "../../support/test-api.ts";
import { callHttp } from "../../support/wire.ts";

const api = await useApi();

/** Locks a table until the test ends, or until it is released. */
async function locked(table: string): Promise<() => Promise<void>> {
  const release = await lock(api, table);
  onTestFinished(release);
  return release;
}

/** Waits until the calls before have arrived, since it comes after them on the one connection. */
const haveArrived = () => api.client(Health).check({});

test.each(PROTOCOLS)(
  "over %s a call past its deadline ends, and so does what it asked of the database",
  async (_name, transport) => {
    await locked("webhooks");
    const call = createClient(WebhookService, transport(api)).listWebhooks({}, { timeoutMs: 300 });
    expect((await refused(call)).code).toBe(Code.DeadlineExceeded);
    await expect.poll(() => waitingQueries(api)).toBe(0);
  },
);

test("a publisher that gives up does not cancel the others of its batch", async () => {
  const release = await locked("events");
  const events = api.client(EventService);
  // Both statements that may be under way wait; what comes now shares the next one.
  const first = [events.publishEvent(orderEvent()), events.publishEvent(orderEvent())];
  await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
  const hasty = orderEvent();
  const gone = new AbortController();
  const ended = refused(events.publishEvent(hasty, { signal: gone.signal }));
  const patient = events.publishEvent(orderEvent());
  await haveArrived();
  gone.abort();
  expect((await ended).code).toBe(Code.Canceled);
  await release();
  expect((await patient).duplicate).toBe(false);
  await Promise.all(first);
  // It was stored all the same, so the same call again is a duplicate.
  expect((await events.publishEvent(hasty)).duplicate).toBe(true);
});

test("a reader that gives up does not cancel others who share the query", async () => {
  const release = await locked("queue");
  const stats = api.client(StatsService);
  const gone = new AbortController();
  const ended = refused(stats.getOverview({}, { signal: gone.signal }));
  await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
  const shared = stats.getOverview({});
  await haveArrived();
  gone.abort();
  expect((await ended).code).toBe(Code.Canceled);
  await release();
  expect((await shared).overview).toBeDefined();
});

test("the server itself ends a call whose client waits on, with DEADLINE_EXCEEDED and a reason", async () => {
  await locked("webhooks");
  const headers = { "Connect-Timeout-Ms": "200" };
  expect(await callHttp(api, "WebhookService/ListWebhooks", { headers })).toMatchObject({
    json: { code: "deadline_exceeded", details: [{ debug: { reason: "DEADLINE_EXCEEDED" } }] },
  });
});

test("a stream past its deadline ends with DEADLINE_EXCEEDED, though it would wait for ever", async () => {
  const questions = async function* () {
    yield { messageRequest: { case: "listServices" as const, value: "" } };
    await new Promise<never>(() => {});
  };
  const answers = api.client(ServerReflection).serverReflectionInfo(questions(), { timeoutMs: 500 });
  const read = async () => {
    for await (const _answer of answers);
  };
  expect((await refused(read())).code).toBe(Code.DeadlineExceeded);
});

test("a deadline further away than any timer reaches is no deadline", async () => {
  const headers = { "grpc-timeout": "99999999H" };
  const { webhooks } = await api.client(WebhookService).listWebhooks({}, { headers });
  expect(webhooks).toEqual([]);
});
