import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { createDispatchTrigger } from "../../src/dispatch/dispatch-now.ts";
import { temporalNames } from "../../src/temporal/names.ts";
import { connectTemporal } from "../../src/temporal/native/connection.ts";
import { part } from "../support/parts.ts";
import { useRefusingProxy } from "../support/refusing-proxy.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";

const log = pino({ level: "silent" });

const never = new AbortController().signal;

test("workers and the API reach Temporal directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  const target = { connectionOptions: { address: (await part("temporal")).address }, namespace: "default" };
  await using ending = new AsyncDisposableStack();
  await connectTemporal(target, never, ending);
  const trigger = createDispatchTrigger(target, temporalNames("none-"), log);
  onTestFinished(() => trigger.close());
  // The schedule does not exist.
  await expect(trigger.trigger()).rejects.toThrow("Temporal does not respond");
  expect(proxied()).toBe(0);
});

test("an attempt to connect that fails half-way closes its connections", async () => {
  const gateway = await startTemporalGateway();
  const sessions = new Set<unknown>();
  // The client connects first, and the workers fail to.
  gateway.answer((_, session) => (sessions.add(session).size === 1 ? null : STATUS_CODES.PERMISSION_DENIED));
  const target = { connectionOptions: { address: gateway.address }, namespace: "default" };
  const ending = new AsyncDisposableStack();
  await expect(connectTemporal(target, never, ending)).rejects.toThrow();
  expect(sessions.size).toBe(2);
  await ending.disposeAsync();
  await expect.poll(gateway.connections).toBe(0);
});
