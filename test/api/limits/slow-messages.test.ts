import type { DescMethod } from "@bufbuild/protobuf";
import type { ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { Health } from "../../../gen/health/v1/health_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { HeldBytes } from "../../../src/api/limits/held-bytes.ts";
import { withBoundedBody } from "../../../src/api/limits/request-messages.ts";
import { enveloped } from "../../support/hostile-messages.ts";

const IDLE_MS = 5_000;
const ENDED = "the request was incomplete, and nothing or less than 16 KiB/s arrived for 5 s; send it again";
const EMPTY = enveloped(Buffer.alloc(0));

const { publishEvent, publishEvents } = EventService.method;
const { serverReflectionInfo } = ServerReflection.method;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A body whose chunks come at an interval, in milliseconds, and that stays open then, unless told. */
async function* arriving(
  chunks: readonly Buffer[],
  everyMs: number,
  ends = false,
): AsyncIterable<Uint8Array> {
  for (const chunk of chunks) {
    await new Promise((resolve) => setTimeout(resolve, everyMs));
    yield new Uint8Array(chunk);
  }
  if (!ends) await new Promise(() => {});
}

const inPieces = (bytes: Buffer, length: number) =>
  Array.from({ length: Math.ceil(bytes.length / length) }, (_, n) =>
    bytes.subarray(n * length, (n + 1) * length),
  );

/** Reads a request's body. Returns its result so far and the number of its messages. */
function reading(
  method: DescMethod,
  body: AsyncIterable<Uint8Array>,
): () => [outcome: string, messages: number] {
  const request = {
    httpVersion: "2.0",
    url: "http://localhost/",
    method: "POST",
    header: new Headers({ "Content-Type": "application/grpc" }),
    signal: new AbortController().signal,
    body,
  };
  const limits = {
    call: new HeldBytes(100_000_000, "messages").open(),
    idleMs: IDLE_MS,
    holds: () => {},
    turn: async () => {},
    onRefused: () => {},
  };
  let [outcome, messages] = ["open", 0];
  void (async () => {
    try {
      const read = withBoundedBody(request, method, limits).body as AsyncIterable<Uint8Array>;
      for await (const _message of read) messages += 1;
      outcome = "read";
    } catch (error) {
      outcome = (error as ConnectError).rawMessage;
    }
  })();
  return () => [outcome, messages];
}

describe.each([Health.method.check, WebhookService.method.listWebhooks, publishEvents])(
  "a message of $name is given up after the idle timeout",
  (method) => {
    const message = enveloped(Buffer.alloc(4_096));
    test.each([
      ["if nothing of it comes", arriving([message.subarray(0, 100)], 0), 1],
      // A publisher's time starts with the first byte.
      ["if a byte comes now and then", arriving(inPieces(message, 1), IDLE_MS / 10), (2 * IDLE_MS) / 10],
    ])("%s", async (_what, body, laterMs) => {
      const state = reading(method, body);
      await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
      expect(state()).toEqual(["open", 0]);
      await vi.advanceTimersByTimeAsync(laterMs);
      expect(state()).toEqual([ENDED, 0]);
    });
  },
);

test.each([
  ["faster than 16 KiB/s is read to its end", 200, ["read", 1]],
  ["more slowly is given up", 300, [ENDED, 0]],
])("a message that arrives for longer than the idle timeout, %s", async (_what, everyMs, outcome) => {
  const pieces = inPieces(enveloped(Buffer.alloc(800_000)), 4_096);
  const state = reading(publishEvent, arriving(pieces, everyMs, true));
  await vi.advanceTimersByTimeAsync(2 * IDLE_MS);
  expect(state()).toEqual(["open", 0]);
  await vi.advanceTimersByTimeAsync(pieces.length * everyMs);
  expect(state()).toEqual(outcome);
});

test("a stream of events is read for longer than the idle timeout if each message starts with the end of another", async () => {
  const joined = Buffer.concat([EMPTY.subarray(3), EMPTY.subarray(0, 3)]);
  const chunks = [EMPTY.subarray(0, 3), ...Array<Buffer>(20).fill(joined), EMPTY.subarray(3)];
  const state = reading(publishEvents, arriving(chunks, IDLE_MS / 10, true));
  await vi.advanceTimersByTimeAsync(chunks.length * IDLE_MS);
  expect(state()).toEqual(["read", 21]);
});

test.each([
  ["a publisher may pause between two messages", publishEvents, [EMPTY, EMPTY], ["open", 2]],
  ["but not within one", publishEvents, [EMPTY, EMPTY.subarray(0, 3)], [ENDED, 1]],
  [
    "nor within one that began with the end of another",
    publishEvents,
    [Buffer.concat([EMPTY, EMPTY.subarray(0, 3)])],
    [ENDED, 1],
  ],
  ["nor may a caller without a key", serverReflectionInfo, [EMPTY, EMPTY], [ENDED, 0]],
])("%s, for longer than the idle timeout", async (_what, method, chunks, outcome) => {
  const state = reading(method, arriving(chunks, 10 * IDLE_MS));
  await vi.advanceTimersByTimeAsync(40 * IDLE_MS);
  expect(state()).toEqual(outcome);
});

test("a publisher who has paused has the idle timeout for the next message again", async () => {
  async function* body() {
    yield* arriving([EMPTY], 0, true);
    yield* arriving([EMPTY.subarray(0, 3)], 10 * IDLE_MS, true);
    yield* arriving([EMPTY.subarray(3)], IDLE_MS / 2);
  }
  const state = reading(publishEvents, body());
  await vi.advanceTimersByTimeAsync(11 * IDLE_MS);
  expect(state()).toEqual(["open", 2]);
});
