import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { EventService, type PublishResult } from "../../gen/webhook/v1/event_pb.ts";
import { serveCalls } from "../parts/child.ts";
import { leanPublisher } from "../parts/lean-grpc.ts";
import { type Member, publishRequest } from "../parts/payload.ts";

/** The service and the key to publish with. */
export interface Target {
  grpcUrl: string;
  key: string;
}

/** The calls accepted by the publishers' process. */
export type PublisherMethods = {
  /** One call per event with the given concurrency. Returns seconds. */
  unary(argument: Target & { events: number; concurrency: number; member?: Member }): Promise<number>;
  /** Concurrent streams with several events per message. Returns seconds. */
  streamed(argument: Target & { events: number; streams: number; eventsPerMessage: number }): Promise<number>;
  /**
   * One call per event at even intervals. Returns the time of each call, or of its response, in milliseconds since
   * 1970, by order id.
   */
  paced(
    argument: Target & {
      perSecond: number;
      seconds: number;
      firstOrder: number;
      /** Defaults to `call`. */
      timeOf?: "call" | "response";
    },
  ): Promise<Map<number, number>>;
};

/** The maximum number of events per stream, according to its contract. */
const EVENTS_PER_STREAM = 10_000;

function connect({ grpcUrl, key }: Target): Client<typeof EventService> {
  const transport = createGrpcTransport({
    baseUrl: grpcUrl,
    interceptors: [
      (next) => (request) => {
        request.header.set("X-Service-Key", key);
        return next(request);
      },
    ],
  });
  return createClient(EventService, transport);
}

function assertPublished(results: PublishResult[], expected: number): void {
  const refused = results.find(({ result }) => result.case !== "published")?.result;
  if (refused?.case === "error") throw new Error(`event ${refused.value.index}: ${refused.value.message}`);
  if (results.length !== expected) throw new Error(`${results.length} of ${expected} events were answered`);
}

serveCalls({
  async unary({ events, concurrency, member, ...target }) {
    const client = leanPublisher(target.grpcUrl, target.key);
    let next = 1;
    const started = performance.now();
    await Promise.all(
      Array.from({ length: concurrency }, async () => {
        while (next <= events) await client.publishEvent(publishRequest(next++, randomUUID(), member));
      }),
    );
    const seconds = (performance.now() - started) / 1_000;
    client.close();
    return seconds;
  },

  async streamed({ events, streams, eventsPerMessage, ...target }) {
    const client = connect(target);
    let left = events;
    async function* messages(count: number) {
      for (let from = 0; from < count; from += eventsPerMessage) {
        const length = Math.min(eventsPerMessage, count - from);
        yield { events: Array.from({ length }, (_, n) => publishRequest(1 + from + n, randomUUID())) };
      }
    }
    const perStream = Math.min(EVENTS_PER_STREAM, Math.ceil(events / streams));
    const started = performance.now();
    await Promise.all(
      Array.from({ length: streams }, async () => {
        while (left > 0) {
          const count = Math.min(perStream, left);
          left -= count;
          assertPublished((await client.publishEvents(messages(count))).results, count);
        }
      }),
    );
    return (performance.now() - started) / 1_000;
  },

  async paced({ perSecond, seconds, firstOrder, timeOf = "call", ...target }) {
    const client = connect(target);
    const published = new Map<number, number>();
    const calls: Promise<unknown>[] = [];
    const started = performance.now();
    for (let n = 0; n < perSecond * seconds; n += 1) {
      const due = started + (1_000 * n) / perSecond;
      await wait(Math.max(0, due - performance.now()));
      const order = firstOrder + n;
      published.set(order, Date.now());
      const call = client.publishEvent(publishRequest(order, randomUUID()));
      calls.push(timeOf === "call" ? call : call.then(() => published.set(order, Date.now())));
    }
    await Promise.all(calls);
    return published;
  },
} satisfies PublisherMethods);
