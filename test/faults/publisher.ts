import { randomUUID } from "node:crypto";
import { type Client, createClient } from "@connectrpc/connect";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { keyedTransport } from "../support/test-service.ts";

/** A caller that repeats what was not answered, under the same idempotency key, as callers are told to. */
export type Publisher = ReturnType<typeof createPublisher>;

/** At once; the API's own limits are not what is tested. */
const CALLS = 8;
/** Before a call is repeated, in milliseconds: doubled each time, up to the maximum. */
const PAUSE_MS = { min: 50, max: 2_000 };
/** How often steady publishing looks what is due, in milliseconds. */
const TICK_MS = 20;

/** @param nextPort where the next call is to go: APIs come back on other ports */
export function createPublisher(nextPort: () => number, adminKey: string) {
  let published = 0;
  let repeated = 0;
  const clients = new Map<number, Client<typeof EventService>>();

  /** One client as long as an API stays where it is, as callers have. */
  function clientNow(): Client<typeof EventService> {
    const port = nextPort();
    const known = clients.get(port);
    if (known) return known;
    const client = createClient(EventService, keyedTransport(port, adminKey));
    clients.set(port, client);
    return client;
  }

  async function one(): Promise<void> {
    const idempotencyKey = randomUUID();
    for (let pauseMs = PAUSE_MS.min; ; pauseMs = Math.min(PAUSE_MS.max, 2 * pauseMs)) {
      try {
        await clientNow().publishEvent({ ...orderEvent(), idempotencyKey }, { timeoutMs: 5_000 });
        published += 1;
        return;
      } catch {
        repeated += 1;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  }

  return {
    /** Events whose publication was answered. */
    published: () => published,
    /** Calls that failed and were repeated. */
    repeated: () => repeated,
    /** Resolves once each of `count` more events has been answered. */
    async publish(count: number): Promise<void> {
      let left = count;
      const caller = async () => {
        while (left > 0) {
          left -= 1;
          await one();
        }
      };
      await Promise.all(Array.from({ length: CALLS }, caller));
    },
    /** Publishes so many events a second, whether those before are answered or not, until it is told to stop. */
    steadily(perSecond: number) {
      const began = performance.now();
      const calls: Promise<void>[] = [];
      const timer = setInterval(() => {
        const due = ((performance.now() - began) / 1_000) * perSecond;
        while (calls.length < due) calls.push(one());
      }, TICK_MS);
      return {
        /** Resolves once each event has been answered. */
        async stop(): Promise<void> {
          clearInterval(timer);
          await Promise.all(calls);
        },
      };
    },
  };
}
