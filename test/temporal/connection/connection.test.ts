import type { ConnectionOptions } from "@temporalio/client";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { STATUS_CODES } from "../../../src/contract/errors.ts";
import { connectTemporal } from "../../../src/temporal/connection/connection.ts";
import { temporalNames } from "../../../src/temporal/connection/names.ts";
import { createDispatchTrigger } from "../../../src/temporal/dispatch-now.ts";
import { anyPort } from "../../support/any-port.ts";
import { part } from "../../support/parts.ts";
import { useRefusingProxy } from "../../support/refusing-proxy.ts";
import { startTemporalGateway } from "../../support/temporal-gateway.ts";

const log = pino({ level: "silent" });

/** A signal that is aborted when the test has ended. */
function untilEnd(): AbortSignal {
  const ended = new AbortController();
  onTestFinished(() => ended.abort());
  return ended.signal;
}

test("workers and the API reach Temporal directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  const target = { connectionOptions: { address: (await part("temporal")).address }, namespace: "default" };
  const connections = await connectTemporal(target, log, untilEnd());
  onTestFinished(() => connections.close());
  const trigger = createDispatchTrigger(target, temporalNames("none-"), log);
  onTestFinished(() => trigger.close());
  // The schedule does not exist.
  await expect(trigger.trigger()).rejects.toThrow("Temporal does not respond");
  expect(proxied()).toBe(0);
});

test("an attempt to connect that fails half-way closes its connections", async () => {
  const gateway = await startTemporalGateway();
  const failed = Promise.withResolvers<void>();
  // The workers' connection has no interceptors.
  const options: ConnectionOptions = {
    address: gateway.address,
    interceptors: [
      () => {
        failed.resolve();
        throw new Error("refused");
      },
    ],
  };
  const stopping = new AbortController();
  const target = { connectionOptions: options as { address: string }, namespace: "default" };
  const connecting = connectTemporal(target, log, stopping.signal);
  await failed.promise;
  expect(gateway.connections()).toBeGreaterThan(0);
  stopping.abort();
  await expect(connecting).rejects.toThrow();
  await expect.poll(gateway.connections).toBe(0);
});

test("each new reason why Temporal is not available is logged once", async () => {
  const lines: string[] = [];
  const port = await anyPort();
  const target = {
    connectionOptions: { address: `127.0.0.1:${port}`, apiKey: "revoked-key", tls: false },
    namespace: "default",
  };
  const told: string[] = [];
  const connecting = connectTemporal(
    target,
    pino({ level: "warn" }, { write: (line: string) => void lines.push(line) }),
    untilEnd(),
    (reason) => void told.push(reason),
  );
  const away = "Temporal cannot be reached";
  const refused =
    "Temporal refuses access (UNAUTHENTICATED); check the API key, the client certificate, and their access to the namespace";
  await expect.poll(() => told).toEqual([away]);
  const gateway = await startTemporalGateway(port);
  gateway.answer(STATUS_CODES.UNAUTHENTICATED);
  await expect.poll(() => told.filter((reason) => reason === refused).length).toBe(2);
  gateway.answer(null);
  const connections = await connecting;
  onTestFinished(() => connections.close());
  const logged = lines.map((line) => JSON.parse(line) as { msg: string; reason: string });
  expect(logged.map(({ msg, reason }) => [msg, reason])).toEqual([
    ["waiting for Temporal", away],
    ["waiting for Temporal", refused],
  ]);
  expect([...told, ...lines].join()).not.toContain("revoked-key");
});
