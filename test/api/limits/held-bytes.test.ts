import { once } from "node:events";
import * as http2 from "node:http2";
import { createClient } from "@connectrpc/connect";
import fc from "fast-check";
import { expect, onTestFinished, type TestContext, test, vi } from "vitest";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { HeldBytes, type HeldCall, KeyShares } from "../../../src/api/limits/held-bytes.ts";
import { readConfig } from "../../../src/config/config.ts";
import { grpc } from "../../support/clients.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

const MAX = 1_000;

/** What one of the calls does: takes bytes, gives some back, or ends. */
const step = fc.record({
  call: fc.nat({ max: 5 }),
  act: fc.oneof(
    fc.record({ hold: fc.integer({ min: 1, max: 700 }) }),
    fc.record({ release: fc.integer({ min: 1, max: 700 }) }),
    fc.constant("close" as const),
  ),
});

test("however calls take and give, no more is held than the limit, and nothing when all have ended", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const all = new HeldBytes(MAX, "messages of all calls");
      const calls = Array.from({ length: 6 }, () => all.open());
      const waiting: Promise<void>[] = [];
      for (const { call: index, act } of steps) {
        // Its reader may go on after a call has ended.
        const call = calls[index] as HeldCall;
        if (act === "close") call.close();
        else if ("hold" in act) {
          const room = call.hold(act.hold);
          // A call that holds something already is refused.
          if (room) waiting.push(room.catch(() => {}));
        } else call.release(act.release);
        expect(all.held).toBeLessThanOrEqual(MAX);
        expect(all.held).toBeGreaterThanOrEqual(0);
      }
      for (const call of calls) call.close();
      await Promise.all(waiting);
      expect(all.held).toBe(0);
    }),
  );
});

test("one message larger than the limit is read when nothing else is, and the next waits for it", async () => {
  const all = new HeldBytes(MAX, "messages of all calls");
  const [large, small] = [all.open(), all.open()];
  expect(large.hold(2 * MAX)).toBeUndefined();
  const room = small.hold(1);
  expect(room).toBeDefined();
  large.close();
  await room;
  expect(all.held).toBe(1);
});

/** Advances the fake timers until a waiting call is refused. Returns how long it waited, and its error. */
async function refusal(waiting: Promise<void> | undefined): Promise<{ afterMs: number; message: string }> {
  const started = performance.now();
  const error = waiting?.then(
    () => new Error("not refused"),
    (refused: Error) => refused,
  );
  let message: string | undefined;
  void error?.then((known) => {
    message = known.message;
  });
  while (message === undefined) await vi.advanceTimersByTimeAsync(100);
  return { afterMs: performance.now() - started, message };
}

test("a call waits 5 seconds at most for its key's memory and the memory of all together, and is told which is used up", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const [all, shares] = [new HeldBytes(MAX, "messages of all calls"), new KeyShares(MAX / 2)];
  const open = (key: string) => {
    const call = all.open();
    call.within(shares.open(key));
    return call;
  };
  const [own, other, third] = [open("a"), open("b"), open("c")];
  expect([own.hold(MAX / 2), other.hold(MAX / 2)]).toEqual([undefined, undefined]);
  // The key's own memory becomes free after 3 s, and another key takes it first.
  const taken = third.hold(MAX / 4);
  const refused = refusal(open("a").hold(MAX / 2));
  setTimeout(() => own.close(), 3_000);
  expect(await refused).toEqual({
    afterMs: 5_000,
    message:
      "the messages of all calls that are being read leave no room for this one in their 1000 bytes; send it later",
  });
  await taken;
  expect((await refusal(open("b").hold(MAX / 2))).message).toBe(
    "the messages of this API key that are being read leave no room for this one in their 500 bytes; send it later",
  );
});

test("a call that holds something does not wait for more, so that two cannot wait for each other", async () => {
  const all = new HeldBytes(MAX, "messages of all calls");
  const [first, second] = [all.open(), all.open()];
  first.hold(MAX / 2);
  second.hold(MAX / 2);
  await expect(first.hold(1)).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED" });
  first.close();
  expect(second.hold(1)).toBeUndefined();
});

/** Starts calls whose messages never end. Answers the trailers of the first that is refused. */
async function refusedAmong(
  { onTestFinished: afterwards }: TestContext,
  api: TestApi,
  calls: number,
  bytes: number,
  headersOf: (n: number) => http2.OutgoingHttpHeaders,
): Promise<http2.IncomingHttpHeaders> {
  // The head of a message that is longer than what is sent of it.
  const part = Buffer.alloc(bytes);
  part.writeUInt32BE(bytes, 1);
  const sessions: http2.ClientHttp2Session[] = [];
  const streams = Array.from({ length: calls }, (_, n) => {
    if (n % 200 === 0) sessions.push(http2.connect(api.grpcUrl));
    const headers = { ":method": "POST", "content-type": "application/grpc", ...headersOf(n) };
    const stream = (sessions.at(-1) as http2.ClientHttp2Session).request(headers);
    stream.on("error", () => {}).write(part);
    return stream;
  });
  afterwards(() => {
    for (const session of sessions) session.destroy();
  });
  const [trailers] = await Promise.race(streams.map((stream) => once(stream.resume(), "trailers")));
  return trailers;
}

// Calls that wait for memory do so for seconds.
test.concurrent("a call that finds no room in time is refused with a time to come again, and the next gets the room", async () => {
  const all = new HeldBytes(MAX, "messages of all calls");
  const [holder, large, small] = [all.open(), all.open(), all.open()];
  holder.hold(MAX - 1);
  const refused = large.hold(MAX);
  const room = small.hold(1);
  await expect(refused).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED", retryAfterMs: 1_000 });
  await room;
  expect(all.held).toBe(MAX);
});

test.concurrent("incomplete messages of callers without a key keep out no message of a key", async (context) => {
  const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8" }).limits;
  const api = await startTestApi({ limits: { trustedProxies } });
  context.onTestFinished(() => api.stop());
  const refused = await refusedAmong(context, api, 2_200, 8_192, (n) => ({
    ":path": "/grpc.health.v1.Health/Check",
    "x-forwarded-for": `192.0.2.${Math.floor(n / 200)}`,
  }));
  expect(refused["grpc-status"]).toBe("8");
  expect((await createClient(WebhookService, grpc(api)).listWebhooks({})).webhooks).toEqual([]);
});

test.concurrent("incomplete messages of one key keep out no message of another", async (context) => {
  const api = await startTestApi();
  context.onTestFinished(() => api.stop());
  const { secret } = await api.key();
  const refused = await refusedAmong(context, api, 300, 65_536, () => ({
    ":path": "/webhook.v1.WebhookService/ListWebhooks",
    "x-service-key": secret,
  }));
  expect(refused["grpc-status"]).toBe("8");
  expect((await createClient(WebhookService, grpc(api)).listWebhooks({})).webhooks).toEqual([]);
});
