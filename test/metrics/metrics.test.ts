import { readFileSync } from "node:fs";
import path from "node:path";
import { afterEach, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { ROOT } from "../support/program.ts";
import { sendRaw } from "../support/raw-request.ts";
import { fileService, WOKEN } from "../support/test-service.ts";
import { type Sample, scrape, scrapeText, sum } from "./scrapes.ts";

const service = fileService({ ...WOKEN, METRICS_PORT: "0", DELIVERY_TRACEPARENT: "true" });
afterEach(() => service.removeWebhooks());
const url = () => service.metricsUrl as string;
const measured = async (...wanted: [name: string, labels?: Record<string, string>]) =>
  sum(await scrape(url()), ...wanted);

const WRONG_KEY = { "X-Service-Key": "x" };

/** Counts as the database has them. */
async function counted(sql: string): Promise<number> {
  const [row] = await rows<{ n: number }>(service.db, `select count(*)::int as n from ${sql}`);
  return row?.n ?? 0;
}

test("the counters equal the counts of the database after deliveries, retries and failures", async () => {
  const events = 10;
  await Promise.all([
    service.endpoint(),
    service.endpoint(({ attempt }) => (attempt === 1 ? 503 : 200)),
    service.endpoint(() => 418),
  ]);
  const published = await Promise.all(
    Array.from({ length: events }, (_, n) => service.publish(BigInt(n + 1))),
  );
  await Promise.all(published.map(({ eventId }) => service.untilFinal(eventId)));

  const attempts = "webhook_delivery_attempts_total";
  const posts = "http_client_request_duration_seconds_count";
  const failures = "webhook_deliveries_failed_total";
  const calls = "rpc_server_call_duration_seconds_count";
  const publishing = { rpc_method: "webhook.v1.EventService/PublishEvent" };
  const expected: [count: number, name: string, labels?: Record<string, string>][] = [
    [await counted("events"), "webhook_events_published_total"],
    [await counted("all_attempts"), attempts],
    [7 * events, attempts],
    [events, attempts, { outcome: "delivered", attempt: "1" }],
    [events, attempts, { outcome: "delivered", attempt: "2" }],
    [events, attempts, { outcome: "failed", attempt: "4" }],
    [await counted("deliveries where outcome = 'failed'"), failures, { reason: "attempts" }],
    [events, failures],
    [await counted("deliveries where outcome = 'delivered'"), "webhook_delivery_latency_seconds_count"],
    [7 * events, posts],
    [4 * events, posts, { http_response_status_code: "418", error_type: "418" }],
    [0, "webhook_delivery_in_flight"],
    [events, calls, publishing],
  ];
  const samples = await scrape(url());
  for (const [count, name, labels] of expected) expect(sum(samples, name, labels), name).toBe(count);
});

test("statistics are folded while the backlog is exported", async () => {
  await service.publish();
  await expect.poll(() => counted("rollup_minutes")).toBeGreaterThan(0);
  await expect.poll(() => counted("rollup_deltas")).toBe(0);
});

test("a refused call counts once by its reason, over each protocol, and a refused event of a batch too", async () => {
  const refusals = (labels = {}) => measured("webhook_api_refusals_total", labels);
  const post = (path: string, body: string, headers: Record<string, string> = {}) =>
    fetch(`${service.url}${path}`, {
      method: "POST",
      body,
      headers: { "Content-Type": "application/json", "X-Service-Key": service.adminKey, ...headers },
    });
  const cases: [reason: string, call: () => Promise<unknown>][] = [
    ["FIELDS_INVALID", () => service.webhooks.createWebhook({}).catch(() => {})],
    ["FIELDS_INVALID", () => post("/api/webhook", "{}")],
    ["WEBHOOK_NOT_FOUND", () => service.webhooks.getWebhook({ webhookId: 999n }).catch(() => {})],
    ["REQUEST_INVALID", () => post("/webhook.v1.WebhookService/GetWebhook", "not JSON")],
    ["FIELDS_INVALID", () => post("/webhook.v1.WebhookService/CreateWebhook", "{}", { "X-Admission": "1" })],
    ["REQUEST_INVALID", () => post("/api/webhook", "not JSON")],
    ["API_KEY_UNKNOWN", () => post("/webhook.v1.WebhookService/ListWebhooks", "{}", WRONG_KEY)],
    ["API_KEY_UNKNOWN", () => fetch(`${service.url}/api/webhook/list`, { headers: WRONG_KEY })],
    ["FIELDS_INVALID", () => post("/webhook.v1.EventService/PublishEventBatch", '{"events": [{}]}')],
  ];
  for (const [reason, call] of cases) {
    const before = [await refusals(), await refusals({ reason })];
    await call();
    const after = [await refusals(), await refusals({ reason })];
    expect(after, `${reason}: ${call}`).toEqual(before.map((count) => count + 1));
  }
});

test("deliveries in flight count while their receivers have not answered", async () => {
  const answer = Promise.withResolvers<number>();
  const receiver = await service.endpoint(() => answer.promise);
  const { eventId } = await service.publish();
  await expect.poll(() => receiver.received.length).toBe(1);
  expect(await measured("webhook_delivery_in_flight")).toBe(1);
  answer.resolve(200);
  await service.untilFinal(eventId);
  expect(await measured("webhook_delivery_in_flight")).toBe(0);
});

test("the lease of a worker that ran out is counted, and a delivery that workers died with ten times", async () => {
  const expired = () => measured("webhook_leases_expired_total", { holder: "worker" });
  expect(await expired()).toBe(0);
  await service.db("workers").insert({ name: "gone", task_queue: "gone", lease_until: new Date(0) });
  // It takes seconds, and each scrape some processor time.
  await expect.poll(expired, { interval: 250 }).toBe(1);

  const { webhookId } = await service.endpoint();
  await service.webhooks.pauseWebhook({ webhookId });
  const { eventId } = await service.publish();
  await service.db("queue").where("event_id", eventId).update({ claims: 10 });
  await service.webhooks.resumeWebhook({ webhookId });
  expect(await service.untilFinal(eventId)).toMatchObject([{ state: DeliveryState.FAILED }]);
  expect(await measured("webhook_deliveries_failed_total", { reason: "interrupted" })).toBe(1);
});

test("requests of HTTP are measured by route, and one to an unknown path has none", async () => {
  const requests = "http_server_request_duration_seconds_count";
  await fetch(`${service.url}/healthz`);
  await fetch(`${service.url}/nowhere/${service.adminKey}`);
  const samples = await scrape(url());
  const of = (labels: Record<string, string>) => sum(samples, requests, labels);
  expect(of({ http_route: "/healthz", http_request_method: "GET", http_response_status_code: "200" })).toBe(
    1,
  );
  const unknown = samples.filter(
    ({ name, labels }) => name === requests && labels.http_response_status_code === "404",
  );
  expect(unknown.map(({ labels }) => labels.http_route)).toEqual([undefined]);
});

test("the pool, the statements, the event loop, the memory and the backlog are measured; docs/operations.md names every metric of the service", async () => {
  await expect
    .poll(async () => {
      const names = new Set((await scrape(url())).map(({ name }) => name));
      return [
        "db_client_connections",
        "db_client_connection_pending_requests",
        "db_client_operation_duration_seconds_count",
        "nodejs_eventloop_delay_p99_seconds",
        "nodejs_eventloop_utilization_ratio",
        "process_memory_usage_bytes",
        "webhook_deliveries_pending",
        "webhook_deliveries_oldest_sendable_age_seconds",
        "webhook_delivery_bottleneck_seconds_total",
        "webhook_dispatch_last_run_age_seconds",
        "webhook_leases_expired_total",
        "webhook_retries_overdue",
        "webhook_webhooks",
      ].filter((name) => !names.has(name));
    })
    .toEqual([]);
  const families = [...(await scrapeText(url())).matchAll(/^# TYPE (\S+)/gm)].map(
    ([, name]) => name as string,
  );
  const listed = families.filter((name) => !/^(process|nodejs|v8js|temporal)_|^target_info$/.test(name));
  const document = readFileSync(path.join(ROOT, "docs/operations.md"), "utf8");
  expect(listed.filter((name) => !document.includes(`\`${name}\``))).toEqual([]);
});

test("without traces, an event keeps its publisher's trace, and receivers see it if it is valid", async () => {
  const receiver = await service.endpoint();
  const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  for (const traceparent of [trace, "00-none-of-these-01"])
    await service.untilFinal(
      (await service.events.publishEvent(orderEvent(), { headers: { traceparent } })).eventId,
    );
  expect(receiver.received.map(({ headers }) => headers.traceparent)).toEqual([trace, undefined]);
});

test("no secret, address, host or user is in the metrics, and labels have few values", async () => {
  const receiver = await service.receiver(() => 500);
  const secretPath = "/a-secret-path";
  await service.register(`${receiver.url}${secretPath}`);
  const { eventId } = await service.publish();
  await service.untilFinal(eventId);
  const text = await scrapeText(url());
  const { hostname, port, password } = new URL(service.databaseUrl);
  const ofDatabase = [hostname, port, password].filter(Boolean);
  const ofReceiver = [secretPath, receiver.url, `:${receiver.port}`, "localhost"];
  for (const secret of [service.adminKey, "tenant-1", eventId, ...ofReceiver, ...ofDatabase])
    expect(text).not.toContain(secret);
  const labels = new Set((await scrape(url())).flatMap((sample: Sample) => Object.keys(sample.labels)));
  expect([...labels].filter((label) => /host|url|address|key|webhook_id|server/.test(label))).toEqual([]);
});

test("anything but GET /metrics and /healthz is not found, and what is not HTTP leaves the listener as it is", async () => {
  const { origin, port } = new URL(url());
  expect((await fetch(`${origin}/`)).status).toBe(404);
  expect((await fetch(url(), { method: "POST", body: "x" })).status).toBe(404);
  const health = await fetch(`${origin}/healthz`);
  expect([health.status, await health.json()]).toEqual([200, { status: "alive" }]);
  expect((await fetch(`${origin}/healthz`, { method: "POST", body: "x" })).status).toBe(404);
  expect((await fetch(`${url()}?match=x`)).status).toBe(200);
  await sendRaw(Number(port), "nonsense\r\n\r\n");
  expect((await fetch(url())).headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
});
