import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import type { Tracer } from "@opentelemetry/api";
import protobuf from "protobufjs";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { createLogger } from "../../src/lib/process/logger.ts";
import { endCall, startCall, startTracing, within } from "../../src/metrics/tracing.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

interface Span {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string;
  links: { traceId: string }[];
}

/** The part of OTLP's messages that these tests read. */
const TracesData = protobuf
  .parse(
    `syntax = "proto3";
    message TracesData { repeated ResourceSpans resource_spans = 1; }
    message ResourceSpans { repeated ScopeSpans scope_spans = 2; }
    message ScopeSpans { repeated Span spans = 2; }
    message Span { bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; repeated Link links = 13; }
    message Link { bytes trace_id = 1; }`,
  )
  .root.lookupType("TracesData");

/** A collector that keeps the spans that it receives by OTLP. */
async function startCollector() {
  const spans: Span[] = [];
  const hex = (base64: string) => Buffer.from(base64, "base64").toString("hex");
  const server = createServer(async (request, response) => {
    const body = await buffer(request);
    response.end();
    if (request.url !== "/v1/traces") return;
    const { resourceSpans } = TracesData.toObject(TracesData.decode(body), {
      arrays: true,
      bytes: String,
      defaults: true,
    }) as { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] };
    const received = resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans));
    for (const { name, traceId, spanId, parentSpanId, links } of received)
      spans.push({
        name,
        traceId: hex(traceId),
        spanId: hex(spanId),
        parentSpanId: hex(parentSpanId),
        links: links.map((link) => ({ traceId: hex(link.traceId) })),
      });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { spans, url: `http://127.0.0.1:${port}`, close: () => server.close() };
}

/** A trace of the publisher's: its id, and the header of its call. */
function newTrace() {
  const traceId = randomBytes(16).toString("hex");
  const spanId = randomBytes(8).toString("hex");
  return { traceId, spanId, headers: { traceparent: `00-${traceId}-${spanId}-01` } };
}

let collector: Awaited<ReturnType<typeof startCollector>>;
let service: TestService;

beforeAll(async () => {
  collector = await startCollector();
  vi.stubEnv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url);
  vi.stubEnv("OTEL_BSP_SCHEDULE_DELAY", "100");
  service = await startTestService({ ...WOKEN, OTEL_TRACES_EXPORTER: "otlp", DELIVERY_TRACEPARENT: "true" });
});
afterEach(() => service.removeWebhooks());
afterAll(async () => {
  await service?.stop();
  vi.unstubAllEnvs();
  collector?.close();
});

test("one trace leads from the publisher's call to the POST, and on to the receiver", async () => {
  const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
  await service.register(`${receiver.url}/confidential-path`);
  const trace = newTrace();
  const { eventId } = await service.events.publishEvent(orderEvent(), { headers: trace.headers });
  await service.untilFinal(eventId);
  const found = () => collector.spans.filter(({ traceId }) => traceId === trace.traceId);
  const names = () => found().map(({ name }) => name);
  await expect
    .poll(() => names().sort())
    .toEqual(["POST", "POST", "publish_events", "webhook.v1.EventService/PublishEvent"]);
  const call = found().find(({ name }) => name.endsWith("PublishEvent"));
  expect(call?.parentSpanId).toBe(trace.spanId);
  const posts = found().filter(({ name }) => name === "POST");
  for (const post of posts) expect(post.parentSpanId).toBe(call?.spanId);
  expect(receiver.received.map(({ headers }) => headers.traceparent)).toEqual(
    expect.arrayContaining(posts.map(({ spanId }) => `00-${trace.traceId}-${spanId}-01`)),
  );
  expect(JSON.stringify(collector.spans)).not.toContain("confidential");
});

test("an event whose publisher does not record its trace costs no span, and receivers see its trace", async () => {
  const receiver = await service.endpoint();
  const [unrecorded, recorded] = [newTrace(), newTrace()];
  const unsampled = unrecorded.headers.traceparent.replace(/01$/, "00");
  for (const traceparent of [unsampled, recorded.headers.traceparent]) {
    const { eventId } = await service.events.publishEvent(orderEvent(), { headers: { traceparent } });
    await service.untilFinal(eventId);
  }
  const tracesOf = (name: string) =>
    collector.spans.filter((span) => span.name === name).map(({ traceId }) => traceId);
  await expect.poll(() => tracesOf("POST")).toContain(recorded.traceId);
  expect(collector.spans.map(({ traceId }) => traceId)).not.toContain(unrecorded.traceId);
  expect(receiver.received[0]?.headers.traceparent).toMatch(
    new RegExp(`^00-${unrecorded.traceId}-.{16}-00$`),
  );
});

test("a statement that stores events of several calls links to the trace of each", async () => {
  const traces = Array.from({ length: 8 }, newTrace);
  const lock = await service.db.transaction();
  let calls: Promise<unknown>[] = [];
  try {
    await lock.raw("lock table idempotency_keys in share mode");
    calls = traces.map(({ headers }) => service.events.publishEvent(orderEvent(), { headers }));
    // At most two statements wait for the lock; the events of the other calls share the next ones.
    const waiting = async () =>
      (await service.db("pg_stat_activity").where({ wait_event: "relation" })).length;
    await expect.poll(waiting).toBeGreaterThan(0);
    // Over the same connection, so that the calls before have arrived.
    await service.webhooks.listWebhooks({});
  } finally {
    await lock.rollback();
  }
  await Promise.all(calls);
  const linked = () =>
    collector.spans.find(({ name, links }) => name === "publish_events" && links.length > 1)?.links ?? [];
  await expect.poll(() => linked().length).toBeGreaterThan(1);
  for (const { traceId } of linked()) expect(traces.map((trace) => trace.traceId)).toContain(traceId);
});

test("log lines of traced work carry its trace id, and others none", async () => {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger("info", { role: "api" }, { write: (line) => void lines.push(JSON.parse(line)) });
  const { tracer, close } = await startTracing({ otlp: true, process: "main", log });
  onTestFinished(close);
  const { traceId, headers } = newTrace();
  const span = startCall(tracer as Tracer, "a call", headers.traceparent);
  within(span, () => log.info("traced"));
  log.info("untraced");
  endCall(span, undefined);
  const line = (text: string) => lines.find(({ msg }) => msg === text);
  expect(line("traced")).toMatchObject({ role: "api", traceId });
  expect(line("untraced")).toMatchObject({ role: "api" });
  expect(line("untraced")).not.toHaveProperty("traceId");
});
