import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { emptyItems } from "../../support/hostile-messages.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

const PUBLISH = "/webhook.v1.EventService/PublishEvent";
const BATCH = "/webhook.v1.EventService/PublishEventBatch";
const MIB = 1_048_576;
const BUDGET = 64 * MIB;

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

async function publish(key: string, body: Uint8Array<ArrayBuffer> | string, encoding?: string) {
  const response = await fetch(`${api.url}${BATCH}`, {
    method: "POST",
    headers: {
      "Content-Type": `application/${typeof body === "string" ? "json" : "proto"}`,
      "X-Service-Key": key,
      ...(encoding === undefined ? {} : { "Content-Encoding": encoding }),
    },
    body,
  });
  const text = Buffer.from(await response.arrayBuffer()).toString();
  return { status: response.status, retryAfter: response.headers.get("retry-after"), text };
}

/** A valid event whose JSON has about so many bytes; refused beyond 256 KiB. */
const eventOf = (bytes: number) =>
  JSON.stringify({
    events: [
      {
        idempotencyKey: `event-${bytes}`,
        userId: "tenant-1",
        orderDispatched: {
          orderId: "1",
          orderNumber: "A".repeat(bytes),
          dispatchedAt: "2026-01-01T00:00:00Z",
        },
      },
    ],
  });

test("a key whose large messages are refused may send small ones only, until the minute ends", async () => {
  const { secret } = await api.key();
  const other = await api.key();
  const invalid = emptyItems(2 * MIB);
  for (let sent = 0; sent <= BUDGET; sent += invalid.byteLength) {
    const { status, text } = await publish(secret, invalid);
    expect([status, text]).toEqual([400, expect.stringContaining("MESSAGE_TOO_COMPLEX")]);
  }
  const refused = { status: 429, text: expect.stringContaining("64 MiB of refused messages within 60 s") };
  const large = await publish(secret, eventOf(100_000));
  expect(large).toMatchObject(refused);
  expect(large.text).toContain("RATE_LIMITED");
  expect(Number(large.retryAfter)).toBeGreaterThan(0);
  expect(Number(large.retryAfter)).toBeLessThanOrEqual(60);
  expect(await publish(secret, gzipSync(eventOf(10)), "gzip")).toMatchObject(refused);

  expect(await publish(secret, eventOf(1_000))).toMatchObject({ status: 200 });
  expect(await publish(other.secret, eventOf(100_000))).toMatchObject({ status: 200 });
});

test("messages that a method refuses are counted, also with the header by which REST passes its callers on", async () => {
  const { secret } = await api.key();
  const headers = { "Content-Type": "application/json", "X-Service-Key": secret, "X-Admission": "1" };
  // Valid JSON of a payload above 256 KiB.
  const body = JSON.stringify(JSON.parse(eventOf(1_000_000)).events[0]);
  for (let sent = 0; sent <= BUDGET; sent += body.length) {
    const response = await fetch(`${api.url}${PUBLISH}`, { method: "POST", headers, body });
    expect([response.status, await response.text()]).toEqual([
      400,
      expect.stringContaining("FIELDS_INVALID"),
    ]);
  }
  expect(await publish(secret, eventOf(100_000))).toMatchObject({ status: 429 });
});

test("accepted messages are not counted", async () => {
  const { secret } = await api.key();
  // The same batch each time, which stores its events once.
  const event = JSON.parse(eventOf(250_000)).events[0];
  const events = Array.from({ length: 16 }, (_, n) => ({ ...event, idempotencyKey: `event-${n}` }));
  const batch = JSON.stringify({ events });
  for (let sent = 0; sent <= BUDGET; sent += batch.length)
    expect(await publish(secret, batch)).toMatchObject({ status: 200 });
});
