import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { CircuitBreakerState } from "../../gen/webhook/v1/webhook_pb.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

/** Runs that are asked what they do. */
const MAX_DESCRIBED = 20;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ RETRY_INITIAL_DELAY: "2s", RETRY_BACKOFF_COEFFICIENT: "1" });
});
afterAll(() => service?.stop());

/** The current details of the latest runs that mention the host. */
async function described(host: string): Promise<string> {
  const found: string[] = [];
  for await (const { workflowId, runId } of service.temporal.workflow.list({
    query: `WorkflowId STARTS_WITH "${service.scheduleId}"`,
  })) {
    const handle = service.temporal.workflow.getHandle(workflowId, runId);
    const { currentDetails = "" } = (await handle.query("__temporal_workflow_metadata")) as {
      currentDetails?: string;
    };
    if (currentDetails.includes(host)) found.push(currentDetails);
    if (found.length === MAX_DESCRIBED) break;
  }
  return found.join("\n");
}

test("retries of a failing endpoint wait while its breaker is open, are probed one by one in runs, and follow the first success", async () => {
  let status = 503;
  const receiver = await service.receiver(() => status);
  const webhookId = await service.register(`${receiver.url}/`);
  const circuitBreaker = { enabled: true, failures: 3, failingSeconds: 1, probeSeconds: 1 };
  await service.webhooks.updateWebhook({ webhookId, circuitBreaker });
  const events = await Promise.all([1n, 2n, 3n].map((n) => service.publish(n)));
  const breaker = async () => (await service.webhooks.getWebhook({ webhookId })).webhook?.circuitBreaker;
  await expect.poll(async () => (await breaker())?.state, { timeout: 30_000 }).toBe(CircuitBreakerState.OPEN);
  const before = receiver.received.length;
  await receiver.until((received) => received.length > before);
  const host = `localhost:${receiver.port}`;
  await expect
    .poll(() => described(host), { timeout: 30_000, interval: 500 })
    .toMatch(
      /\*\*Circuit breakers\*\*, as last listed:\n\n- webhook \d+, localhost:\d+: open since .* UTC \(.* attempts in a row have failed, over .*\), next probe .* UTC/,
    );
  await expect
    .poll(() => described(host), { timeout: 30_000, interval: 500 })
    .toMatch(/- webhook \d+, localhost:\d+, 1 delivery, probe/);
  status = 200;
  for (const { eventId } of events) await service.untilFinal(eventId);
  await expect.poll(async () => (await breaker())?.state).toBe(CircuitBreakerState.CLOSED);
  const found = await Promise.all(events.map(({ eventId }) => service.untilFinal(eventId)));
  const states = found.flat().map(({ state }) => state);
  expect(states.filter((state) => state === DeliveryState.DELIVERED).length).toBeGreaterThan(1);
});
