import { setTimeout as delay } from "node:timers/promises";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  BadRequestSchema,
  createWebhookClients,
  ErrorInfoSchema,
  type PublishResult,
  RetryInfoSchema,
  withApiKey,
} from "@webhook-service/client";

const { WEBHOOK_GRPC = "localhost:9090", WEBHOOK_KEY = "" } = process.env;
const { events } = createWebhookClients(
  createGrpcTransport({
    baseUrl: `http://${WEBHOOK_GRPC}`,
    interceptors: [withApiKey(WEBHOOK_KEY)],
    defaultTimeoutMs: 10_000,
  }),
);

const MAX_ATTEMPTS = 5;
/** Canceled is what Connect for Node reports if the connection breaks during a call. */
const TRANSIENT = new Set([Code.Unavailable, Code.DeadlineExceeded, Code.Canceled]);

/** Repeats a call that may succeed later. The idempotency keys stay the same, so nothing is published twice. */
async function withRetries<T>(call: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call();
    } catch (thrown) {
      const error = ConnectError.from(thrown);
      const [retry] = error.findDetails(RetryInfoSchema);
      if (attempt === MAX_ATTEMPTS || !(retry || TRANSIENT.has(error.code))) throw error;
      await delay(retry?.retryDelay ? durationMs(retry.retryDelay) : 100 * 2 ** attempt);
    }
  }
}

const order = (n: number) => ({
  idempotencyKey: `typescript-${n}`,
  userId: "tenant-42",
  data: {
    case: "orderDispatched" as const,
    value: {
      orderId: BigInt(n),
      orderNumber: `SO-${n}`,
      dispatchedAt: { seconds: 1_795_253_400n },
    },
  },
});

function print({ result }: PublishResult): void {
  if (result.case === "published") console.log(`published ${result.value.eventId}`);
  if (result.case === "error") {
    console.log(`event ${result.value.index} refused: ${result.value.reason}: ${result.value.message}`);
  }
}

// One event.
const { eventId, duplicate } = await withRetries(() => events.publishEvent(order(1)));
console.log(`published ${eventId}, duplicate: ${duplicate}`);

// A batch: each event has a result of its own. Codes 3 and 6 are permanent. With any other code, such as 8 for an event
// over the key's quota, publish the event again after `retryAfter`, with the same idempotency key.
const batch = [order(2), { ...order(3), userId: "two words" }];
for (const result of (await withRetries(() => events.publishEventBatch({ events: batch }))).results)
  print(result);

// A stream of up to 10,000 events, a hundred in each message.
async function* thousandOrders() {
  for (let first = 1_001; first <= 1_901; first += 100) {
    yield { events: Array.from({ length: 100 }, (_, n) => order(first + n)) };
  }
}
const { results } = await withRetries(() => events.publishEvents(thousandOrders()));
console.log(`streamed ${results.filter(({ result }) => result.case === "published").length} events`);

// What an error says to programs.
for (const wrong of [
  { ...order(4), userId: "" },
  { ...order(1), userId: "tenant-43" },
]) {
  const error = await events.publishEvent(wrong).then(() => undefined, ConnectError.from);
  const [info] = error?.findDetails(ErrorInfoSchema) ?? [];
  const [invalid] = error?.findDetails(BadRequestSchema) ?? [];
  const fields = invalid?.fieldViolations.map(({ field }) => field).join() ?? info?.metadata.fields;
  console.log(`${info?.reason}: ${fields}`);
}
