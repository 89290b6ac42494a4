import { createNoopMeter } from "@opentelemetry/api";
import { ScheduleClient } from "@temporalio/client";
import { NativeConnection, Worker } from "@temporalio/worker";
import pino, { type Logger } from "pino";
import { expect, onTestFinished, test, vi } from "vitest";
import { startDelivery } from "../../src/app/delivery.ts";
import { readConfig } from "../../src/config/config.ts";
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { createDeliveryInstruments } from "../../src/metrics/instruments.ts";
import { MAX_GROUPS } from "../../src/queue/retry-groups.ts";
import { anyPort } from "../support/any-port.ts";
import { part } from "../support/parts.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";
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

/** Starts delivery beside the file's API; `stopping` must be aborted before it is stopped. */
async function deliver(
  parts: { address: string; log: Logger } & Partial<Parameters<typeof startDelivery>[0]>,
) {
  const { db, secrets } = (await useApi()).context;
  const { databaseUrl } = await useApi();
  const stopping = new AbortController();
  quietRuntime();
  const delivery = startDelivery({
    ...readConfig({}),
    db,
    directDb: db,
    directUrl: databaseUrl,
    secrets,
    names: ownTemporalNames(),
    target: {
      connectionOptions: { address: parts.address, apiKey: "revoked-key", tls: false },
      namespace: "default",
    },
    instruments: createDeliveryInstruments(createNoopMeter()),
    stopping: stopping.signal,
    ...parts,
  });
  return { delivery, stopping };
}

test("the engine is closed, also if its worker cannot be stopped", async () => {
  const broken = new Error("the log cannot be written");
  const error = vi.fn(() => {
    throw broken;
  });
  const close = vi.fn();
  const { delivery, stopping } = await deliver({
    address: (await part("temporal")).address,
    workflowBundle: { code: "not JavaScript" },
    log: Object.assign(pino({ level: "silent" }), { error }),
    resolver: { resolve: async () => [], close },
  });
  await expect(delivery.ready).rejects.toThrow(broken);
  stopping.abort();
  await expect(delivery.stop()).rejects.toThrow(broken);
  expect(close).toHaveBeenCalledOnce();
});

test("each new reason why Temporal is not available is logged once", async () => {
  const lines: string[] = [];
  const port = await anyPort();
  const { delivery, stopping } = await deliver({
    address: `127.0.0.1:${port}`,
    workflowBundle: { codePath: (await part("workflows")).bundle },
    log: pino({ level: "warn" }, { write: (line: string) => void lines.push(line) }),
  });
  onTestFinished(async () => {
    stopping.abort();
    await delivery.stop();
  });
  const away = "Temporal cannot be reached";
  const refused =
    "Temporal refuses access (UNAUTHENTICATED); check the API key, the client certificate, and their access to the namespace";
  await expect.poll(delivery.unready).toEqual([away]);
  const gateway = await startTemporalGateway(port);
  let calls = 0;
  gateway.answer(() => {
    calls += 1;
    return STATUS_CODES.UNAUTHENTICATED;
  });
  await expect.poll(() => calls).toBeGreaterThan(2);
  expect(await delivery.unready()).toEqual([refused]);
  gateway.answer(null);
  await delivery.ready;
  expect(await delivery.unready()).toEqual([]);
  const logged = lines.map((line) => JSON.parse(line) as { msg: string; reason: string });
  expect(logged.map(({ msg, reason }) => [msg, reason])).toEqual([
    ["waiting for Temporal", away],
    ["waiting for Temporal", refused],
  ]);
  expect(lines.join()).not.toContain("revoked-key");
});
