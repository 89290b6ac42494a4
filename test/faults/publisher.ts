import { randomUUID } from "node:crypto";
import { type Client, createClient } from "@connectrpc/connect";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { keyedTransport } from "../support/test-service.ts";

/** A caller that repeats what was not answered, under the same idempotency key, as callers are told to. */
export interface Publisher {
  /** Events whose publication was answered. */
  published(): number;
  /** Calls that failed and were repeated. */
  repeated(): number;
  /** Resolves once each of `count` more events has been answered. */
  publish(count: number): Promise<void>;
}

/** At once; the API's own limits are not what is tested. */
const CALLS = 8;
const PAUSE_MS = 50;

/** @param port where the API is at the moment: it comes back on another port */
export function createPublisher(port: () => number, adminKey: string): Publisher {
  let published = 0;
  let repeated = 0;
  let known: { port: number; client: Client<typeof EventService> } | undefined;

  /** One client as long as the API stays where it is, as callers have. */
  function clientNow(): Client<typeof EventService> {
    if (known?.port !== port()) {
      known = { port: port(), client: createClient(EventService, keyedTransport(port(), adminKey)) };
    }
    return known.client;
  }

  async function one(): Promise<void> {
    const idempotencyKey = randomUUID();
    for (;;) {
      try {
        await clientNow().publishEvent(
          {
            idempotencyKey,
            userId: "tenant-1",
            data: {
              case: "orderDispatched",
              value: { orderId: 1n, orderNumber: "SO-1", dispatchedAt: { seconds: 1_790_000_000n } },
            },
          },
          { timeoutMs: 5_000 },
        );
        published += 1;
        return;
      } catch {
        repeated += 1;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    }
  }

  return {
    published: () => published,
    repeated: () => repeated,
    async publish(count) {
      let left = count;
      const caller = async () => {
        while (left > 0) {
          left -= 1;
          await one();
        }
      };
      await Promise.all(Array.from({ length: CALLS }, caller));
    },
  };
}
