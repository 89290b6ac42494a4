import { randomUUID } from "node:crypto";
import { Connection } from "@temporalio/client";
import proto from "@temporalio/proto";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { SEARCH_ATTRIBUTES } from "../../src/temporal/setup/search-attributes.ts";
import { part } from "../support/parts.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

// Temporal tells all parts of itself of changed attributes within a minute, and waits before it repeats a task.
vi.setConfig({ testTimeout: 240_000 });
const PATIENT = { timeout: 120_000, interval: 200 };
const { INDEXED_VALUE_TYPE_INT: INT, INDEXED_VALUE_TYPE_KEYWORD_LIST: KEYWORD_LIST } =
  proto.temporal.api.enums.v1.IndexedValueType;

/** Attributes concern all runs of a namespace. */
const namespace = `searched-${randomUUID()}`;
let connection: Connection;
let service: TestService;
beforeAll(async () => {
  connection = await Connection.connect({ address: (await part("temporal")).address });
  await connection.workflowService.registerNamespace({
    namespace,
    workflowExecutionRetentionPeriod: { seconds: 86_400 as never },
  });
  // Namespaces are known everywhere after a few seconds; until then the service waits for this one.
  service = await startTestService({ TEMPORAL_NAMESPACE: namespace, DISPATCH_INTERVAL: "24h" });
});
afterAll(async () => {
  await service?.stop();
  await connection?.close();
});

const names = Object.keys(SEARCH_ATTRIBUTES);

async function found(query: string): Promise<string[]> {
  const ids = [];
  for await (const { workflowId } of service.temporal.workflow.list({ query })) ids.push(workflowId);
  return ids;
}

/** Starts a run with a delivery that fails once and is retried. */
async function startFailingRun(id: string) {
  const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  const run = await startRun(service, id);
  return { run, eventId, host: new URL(receiver.url).host };
}

async function expectDelivered({ run, eventId }: Awaited<ReturnType<typeof startFailingRun>>): Promise<void> {
  await run.result();
  expect(await service.untilFinal(eventId)).toMatchObject([
    { state: DeliveryState.DELIVERED, attemptCount: 2 },
  ]);
}

test("runs are found by failing hosts and attempts; they go on when the attributes are removed, and set them again once they are back", async () => {
  const before = await startFailingRun("before");
  await expectDelivered(before);
  const query = ({ host }: { host: string }) => `FailingHosts = "${host}" and DeliveryAttempts = 2`;
  await expect.poll(() => found(query(before)), PATIENT).toEqual([before.run.workflowId]);
  await service.removeWebhooks();

  await connection.operatorService.removeSearchAttributes({ namespace, searchAttributes: names });
  const without = await startFailingRun("without");
  await expectDelivered(without);
  await service.removeWebhooks();

  await connection.operatorService.addSearchAttributes({
    namespace,
    searchAttributes: { FailingWebhookIds: KEYWORD_LIST, FailingHosts: KEYWORD_LIST, DeliveryAttempts: INT },
  });
  const after = await startFailingRun("after");
  await expectDelivered(after);
  await expect.poll(() => found(query(after)).catch(() => []), PATIENT).toEqual([after.run.workflowId]);
});
