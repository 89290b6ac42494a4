import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { ConnectionOptions } from "@temporalio/client";
import { pino } from "pino";
import { expect, inject, onTestFinished, test } from "vitest";
import { connectTemporal } from "../../../src/temporal/connection/connection.ts";
import { temporalNames } from "../../../src/temporal/connection/names.ts";
import { createDispatchTrigger } from "../../../src/temporal/dispatch-now.ts";
import { useRefusingProxy } from "../../support/refusing-proxy.ts";

const log = pino({ level: "silent" });

test("workers and the API reach Temporal directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  const target = { connectionOptions: { address: inject("temporalAddress") }, namespace: "default" };
  const connections = await connectTemporal(target, log, AbortSignal.timeout(20_000));
  onTestFinished(() => connections.close());
  const trigger = createDispatchTrigger(target, temporalNames("none-"), log);
  onTestFinished(() => trigger.close());
  // The schedule does not exist.
  await expect(trigger.trigger()).rejects.toThrow("Temporal does not respond");
  expect(proxied()).toBe(0);
});

test("an attempt to connect that fails half-way closes its connections", async () => {
  const open = new Set<Socket>();
  const [host = "", port] = inject("temporalAddress").split(":");
  const gateway = createServer((socket) => {
    open.add(socket);
    const onward = connect(Number(port), host);
    for (const [end, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      end.on("error", () => {});
      end.on("close", () => other.destroy());
      end.pipe(other);
    }
    socket.on("close", () => open.delete(socket));
  }).listen(0, "127.0.0.1");
  await once(gateway, "listening");
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    gateway.close();
  });

  const failed = Promise.withResolvers<void>();
  // The workers' connection has no interceptors.
  const options: ConnectionOptions = {
    address: `127.0.0.1:${(gateway.address() as AddressInfo).port}`,
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
  expect(open.size).toBeGreaterThan(0);
  stopping.abort();
  await expect(connecting).rejects.toThrow();
  await expect.poll(() => open.size).toBe(0);
});
