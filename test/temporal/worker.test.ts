import { ScheduleClient } from "@temporalio/client";
import { NativeConnection, Worker } from "@temporalio/worker";
import pino from "pino";
import { expect, onTestFinished, test, vi } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { temporalTarget } from "../../src/temporal/connection/target.ts";
import { startDelivery } from "../../src/worker/delivery.ts";
import { part } from "../support/parts.ts";
import { startTestApi } from "../support/test-api.ts";
import { ownTemporalNames, quietRuntime, startTestService, WOKEN } from "../support/test-service.ts";

/** Fails the next trigger of any schedule, as when Temporal refuses calls for a while. @returns how often one was triggered */
function failNextTrigger(): () => number {
  let triggers = 0;
  const { getHandle } = ScheduleClient.prototype;
  const spy = vi.spyOn(ScheduleClient.prototype, "getHandle").mockImplementation(function (
    this: ScheduleClient,
    id,
  ) {
    const handle = getHandle.call(this, id);
    const trigger = handle.trigger.bind(handle);
    return Object.assign(handle, {
      async trigger() {
        triggers += 1;
        if (triggers === 1) throw new Error("the namespace's rate limit is exceeded");
        await trigger();
      },
    });
  });
  onTestFinished(() => spy.mockRestore());
  return () => triggers;
}

test("a worker whose trigger of a run fails repeats it, keeps its pollers, and ends all of them at its stop", async () => {
  const create = vi.spyOn(Worker, "create");
  onTestFinished(() => create.mockRestore());
  const triggers = failNextTrigger();
  const service = await startTestService(WOKEN);
  let isStopped = false;
  onTestFinished(async () => {
    if (!isStopped) await service.stop();
  });
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  await service.publish();
  await receiver.until((received) => received.length === 1);
  expect(triggers()).toBe(2);
  const states = async () =>
    (await Promise.all(create.mock.results.map(({ value }) => value as Promise<Worker>))).map((worker) =>
      worker.getState(),
    );
  expect(await states()).toEqual(["RUNNING", "RUNNING", "RUNNING"]);
  await service.stop();
  isStopped = true;
  expect(await states()).toEqual(["STOPPED", "STOPPED", "STOPPED"]);
});

test("a worker that cannot be created leaves no other behind, nor their connection, and delivers once all can be", async () => {
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
  onTestFinished(() => service.stop());
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  await service.publish();
  await receiver.until((received) => received.length === 1);
  const first: Worker = await creating.mock.results[0]?.value;
  expect(first.getState()).toBe("STOPPED");
  const [closed] = await Promise.allSettled(closing.mock.results.map(({ value }) => value));
  expect(closed).toEqual({ status: "fulfilled", value: undefined });
});

test("the engine is closed, also if its worker cannot be stopped", async () => {
  const names = ownTemporalNames();
  quietRuntime();
  const api = await startTestApi();
  onTestFinished(() => api.stop());
  const { db, secrets } = api.context;
  const broken = new Error("the log cannot be written");
  const error = vi.fn(() => {
    throw broken;
  });
  const close = vi.fn();
  const stopping = new AbortController();
  const delivery = startDelivery({
    ...readConfig({}),
    db,
    directDb: db,
    directUrl: api.databaseUrl,
    secrets,
    names,
    target: temporalTarget({ TEMPORAL_ADDRESS: (await part("temporal")).address }),
    workflowBundle: { code: "not JavaScript" },
    log: Object.assign(pino({ level: "silent" }), { error }),
    stopping: stopping.signal,
    resolver: { resolve: async () => [], close },
  });
  await expect(delivery.ready).rejects.toThrow(broken);
  stopping.abort();
  await expect(delivery.stop()).rejects.toThrow(broken);
  expect(close).toHaveBeenCalledOnce();
});
