import { createNoopMeter } from "@opentelemetry/api";
import { ScheduleClient } from "@temporalio/client";
import { NativeConnection, Worker } from "@temporalio/worker";
import pino from "pino";
import { expect, onTestFinished, test, vi } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { MAX_GROUPS } from "../../src/db/queue/retry-groups.ts";
import { createDeliveryInstruments } from "../../src/metrics/instruments.ts";
import { temporalTarget } from "../../src/temporal/connection/target.ts";
import { startDelivery } from "../../src/worker/delivery.ts";
import { part } from "../support/parts.ts";
import { useApi } from "../support/test-api.ts";
import { ownTemporalNames, quietRuntime, startTestService, WOKEN } from "../support/test-service.ts";

/** Fails the first trigger of a schedule, as when Temporal refuses calls for a while. @returns how often one was triggered */
function failFirstTrigger(): () => number {
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

test("a worker creates its pollers again if one of them cannot be created, repeats a trigger that fails, and ends all pollers at its stop", async () => {
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
  const triggers = failFirstTrigger();
  const service = await startTestService(WOKEN);
  onTestFinished(service.stop);
  const receiver = await service.endpoint();
  await service.publish();
  await receiver.until(({ length }) => length === 1);
  expect(triggers()).toBe(2);

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

test("the engine is closed, also if its worker cannot be stopped", async () => {
  const names = ownTemporalNames();
  quietRuntime();
  const api = await useApi();
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
    instruments: createDeliveryInstruments(createNoopMeter()),
    stopping: stopping.signal,
    resolver: { resolve: async () => [], close },
  });
  await expect(delivery.ready).rejects.toThrow(broken);
  stopping.abort();
  await expect(delivery.stop()).rejects.toThrow(broken);
  expect(close).toHaveBeenCalledOnce();
});
