import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EventService, WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { keyedTransport } from "../support/test-service.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { untilAllFinal } from "./parts.ts";
import { whoDelivered } from "./who-delivered.ts";

/** The second pump has an even chance to be the other worker's; given eagerly, it would never be. */
const MOST_ROUNDS = 20;

let cluster: Cluster;

beforeAll(async () => {
  cluster = await startCluster({ DISPATCH_ON_PUBLISH: "true", DISPATCH_INTERVAL: "24h" });
});
afterAll(() => cluster?.end());

/** A receiver of one event type, which answers when it is told to. */
async function holding(process: WebhookProcess): Promise<{ held(): number; letGo(): void }> {
  let held: (() => void)[] = [];
  const { url } = await cluster.receiver(
    () => new Promise<number>((resolve) => held.push(() => resolve(200))),
  );
  await cluster.register(url, process);
  return {
    held: () => held.length,
    letGo() {
      for (const answer of held) answer();
      held = [];
    },
  };
}

test("two workers share what publishing wakes: a pump beside another can be the other worker's", async () => {
  await Promise.all([cluster.startWorker(), cluster.startWorker()]);
  const orders = await holding(WebhookProcess.ORDER_DISPATCHED);
  const documents = await holding(WebhookProcess.DOCUMENT_CREATED);
  const events = createClient(EventService, keyedTransport(cluster.api.grpcPort, cluster.adminKey));
  const createdAt = { seconds: 1_790_000_000n };
  let shared = false;
  for (let round = 0; round < MOST_ROUNDS && !shared; round += 1) {
    await cluster.publisher.publish(1);
    await expect.poll(orders.held).toBe(1);
    // Wakes a pump of its own, since the first waits for its receiver.
    await events.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "tenant-1",
      data: { case: "documentCreated", value: { documentId: 1n, kind: 1, number: "D", createdAt } },
    });
    await expect.poll(documents.held).toBe(1);
    orders.letGo();
    documents.letGo();
    await untilAllFinal(cluster.db);
    shared = (await whoDelivered(cluster)).some((ofRun) => ofRun.size === 2);
  }
  expect(shared).toBe(true);
});
