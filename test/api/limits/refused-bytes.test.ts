import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { emptyItems } from "../../support/hostile-messages.ts";
import { useApi } from "../../support/test-api.ts";
import { callHttp } from "../../support/wire.ts";

const BATCH = "EventService/PublishEventBatch";
const MIB = 1_048_576;
/** The bytes of refused messages that a key may send in a minute. */
const BUDGET = 64 * MIB;
/** A message of the largest size that is refused at little cost. */
const INVALID = emptyItems(2 * MIB);

const api = await useApi();

/** A valid event with about this number of bytes as JSON. */
const event = (bytes: number) => ({
  idempotencyKey: `event-${bytes}`,
  userId: "tenant-1",
  orderDispatched: { orderId: "1", orderNumber: "A".repeat(bytes), dispatchedAt: "2026-01-01T00:00:00Z" },
});
const batch = (bytes: number) => JSON.stringify({ events: [event(bytes)] });

test("a key whose messages above 64 KiB are refused for 64 MiB may send small ones only, until the minute ends", async () => {
  const { secret: key } = await api.key();
  for (let sent = 0; sent < BUDGET; sent += INVALID.byteLength) {
    const { status, text } = await callHttp(api, BATCH, { key, type: "application/proto", body: INVALID });
    expect([status, text]).toEqual([400, expect.stringContaining("MESSAGE_TOO_COMPLEX")]);
  }
  // The budget is used up, not exceeded: accepted messages are not counted, nor are small ones.
  for (let n = 0; n < 2; n += 1)
    expect(await callHttp(api, BATCH, { key, body: batch(100_000) })).toMatchObject({ status: 200 });
  expect((await callHttp(api, BATCH, { key, body: '{"events": 1}' })).status).toBe(400);
  expect((await callHttp(api, BATCH, { key, body: batch(90_000) })).status).toBe(200);

  // What a method refuses is counted, also with the header by which REST passes its callers on.
  const tooLarge = { key, body: JSON.stringify(event(500_000)), headers: { "X-Admission": "1" } };
  const { status, text } = await callHttp(api, "EventService/PublishEvent", tooLarge);
  expect([status, text]).toEqual([400, expect.stringContaining("FIELDS_INVALID")]);

  const large = await callHttp(api, BATCH, { key, body: batch(100_000) });
  expect([large.status, large.text]).toEqual([
    429,
    expect.stringMatching(/64 MiB of refused messages within 60 s.*RATE_LIMITED/s),
  ]);
  expect(Number(large.headers.get("retry-after"))).toBeGreaterThan(0);
  expect(Number(large.headers.get("retry-after"))).toBeLessThanOrEqual(60);
  const packed = { key, body: new Uint8Array(gzipSync(batch(10))), headers: { "Content-Encoding": "gzip" } };
  expect((await callHttp(api, BATCH, packed)).status).toBe(429);

  expect((await callHttp(api, BATCH, { key, body: batch(1_000) })).status).toBe(200);
  const other = (await api.key()).secret;
  expect((await callHttp(api, BATCH, { key: other, body: batch(100_000) })).status).toBe(200);
});
