import { NativeConnection, Worker } from "@temporalio/worker";
import { expect, onTestFinished, test, vi } from "vitest";
import { MAX_GROUPS } from "../../src/db/queue/retry-groups.ts";
import { startTestService, WOKEN } from "../support/test-service.ts";

test("a worker creates its pollers again if one of them cannot be created, and ends all pollers at its stop", async () => {
  const { create } = Worker;
  let creations = 0;
  const creating = vi.spyOn(Worker, "create").mockImplementation(async (options) => {
    creations += 1;
    if (creations === 2) throw new Error("the namespace's limit of pollers is reached");
    return create.call(Worker, options);
  });
  const closing = vi.spyOn(NativeConnection.prototype, "close");
  onTestFinished(() => {
    creating.mockRestore();
    closing.mockRestore();
  });
  const service = await startTestService(WOKEN);
  onTestFinished(service.stop);
  const receiver = await service.endpoint();
  await service.publish();
  await receiver.until(({ length }) => length === 1);

  // Nothing is left of the first try, neither its poller nor its connection.
  const workers = await Promise.all(
    creating.mock.results.map(({ value }) => (value as Promise<Worker>).catch(() => undefined)),
  );
  const states = () => workers.map((worker) => worker?.getState());
  expect(states()).toEqual(["STOPPED", undefined, "RUNNING", "RUNNING", "RUNNING"]);
  // The groups of several runs may wait for hosts that hang while others are retried.
  const mostAtOnce = creating.mock.calls.map(([options]) => options.maxConcurrentActivityTaskExecutions);
  expect(mostAtOnce.at(-1)).toBeGreaterThanOrEqual(10 * MAX_GROUPS);
  const closed = await Promise.all(closing.mock.results.map(({ value }) => value));
  expect(closed).toHaveLength(1);
  await service.stop();
  expect(states()).toEqual(["STOPPED", undefined, "STOPPED", "STOPPED", "STOPPED"]);
});
