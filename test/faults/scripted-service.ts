import { randomUUID } from "node:crypto";
import { lookup } from "node:dns";
import { readFile } from "node:fs/promises";
import { Connection, Client as TemporalClient } from "@temporalio/client";
import { inject } from "vitest";
import { readConfig } from "../../src/config.ts";
import { type AddressGuard, createAddressGuard, type Resolver } from "../../src/delivery/address-guard.ts";
import { createDeliveryEngine } from "../../src/delivery/engine.ts";
import { createHttpClient } from "../../src/delivery/http-client.ts";
import { createLogger } from "../../src/logger.ts";
import { temporalTarget } from "../../src/temporal/connection.ts";
import { temporalNames } from "../../src/temporal/names.ts";
import { installRuntime } from "../../src/temporal/runtime.ts";
import { type DeliveryWorker, startDeliveryWorker } from "../../src/temporal/worker.ts";
import { startTestApi, type TestApi } from "../support/test-api.ts";

/** An API whose worker starts when told, and for whose worker names resolve as the test says. */
export interface ScriptedService {
  api: TestApi;
  startWorker(): Promise<void>;
  /** As SIGTERM does. */
  stopWorker(): Promise<void>;
  stop(): Promise<void>;
}

/** @param names the addresses of a name, asked for at each look-up; undefined leaves it to the system */
export async function startScriptedService(
  settings: Record<string, string>,
  names: (hostname: string) => string[] | undefined,
): Promise<ScriptedService> {
  const config = readConfig(settings);
  installRuntime(createLogger(process.env.TEST_LOG_LEVEL ?? "silent"));
  const api = await startTestApi();
  const { db, secrets, log } = api.context;
  const stopping = new AbortController();
  const own = temporalNames(`${randomUUID()}-`);
  const client = createHttpClient(createGuard(config.delivery.allowedNetworks, names), 128);
  const engine = {
    ...createDeliveryEngine({ db, secrets, log, ...config, stopping: stopping.signal }),
    client,
  };
  let worker: DeliveryWorker | undefined;

  async function stopWorker(): Promise<void> {
    stopping.abort();
    if (!worker) return;
    await removeSchedule(own.scheduleId);
    await worker.stop();
    worker = undefined;
  }

  return {
    api,
    async startWorker() {
      const code = await readFile(inject("workflowBundle"), "utf8");
      const target = temporalTarget({ TEMPORAL_ADDRESS: inject("temporalAddress") });
      worker = await startDeliveryWorker({
        target,
        names: own,
        engine,
        dispatch: config.dispatch,
        log,
        workflowBundle: { code },
      });
    },
    stopWorker,
    async stop() {
      await stopWorker();
      await client.destroy();
      await engine.close();
      await api.stop();
    },
  };
}

function createGuard(
  allowed: Parameters<typeof createAddressGuard>[0],
  names: (hostname: string) => string[] | undefined,
): AddressGuard {
  const resolve: Resolver = (hostname, options, callback) => {
    const addresses = names(hostname);
    if (addresses === undefined) lookup(hostname, options, callback);
    else
      setImmediate(
        callback,
        null,
        addresses.map((address) => ({ address, family: 4 })),
      );
  };
  return createAddressGuard(allowed, resolve);
}

async function removeSchedule(scheduleId: string): Promise<void> {
  const connection = await Connection.connect({ address: inject("temporalAddress") });
  try {
    await new TemporalClient({ connection }).schedule.getHandle(scheduleId).delete();
  } finally {
    await connection.close();
  }
}
