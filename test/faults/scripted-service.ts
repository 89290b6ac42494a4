import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { Connection, Client as TemporalClient } from "@temporalio/client";

import { readConfig } from "../../src/config/config.ts";
import { createDeliveryEngine } from "../../src/delivery/engine.ts";
import type { Resolver } from "../../src/delivery/http/name-resolver.ts";
import { type TemporalNames, temporalNames } from "../../src/temporal/connection/names.ts";
import { temporalTarget } from "../../src/temporal/connection/target.ts";
import { type DeliveryWorker, startDeliveryWorker } from "../../src/temporal/worker.ts";
import { part } from "../support/parts.ts";
import { startTestApi, type TestApi } from "../support/test-api.ts";
import { deleteSchedules, quietRuntime } from "../support/test-service.ts";

/** An API whose worker starts when told, and for whose worker names resolve as the test says. */
export interface ScriptedService {
  api: TestApi;
  startWorker(): Promise<void>;
  /** As SIGTERM does. */
  stopWorker(): Promise<void>;
  stop(): Promise<void>;
}

/** @param resolver how the worker looks names up; closed with the service */
export async function startScriptedService(
  settings: Record<string, string>,
  resolver: Resolver,
): Promise<ScriptedService> {
  const config = readConfig(settings);
  quietRuntime();
  const api = await startTestApi();
  const { db, secrets, log } = api.context;
  const stopping = new AbortController();
  const own = temporalNames(`${randomUUID()}-`);
  const engine = createDeliveryEngine({
    db,
    directDb: db,
    directUrl: api.databaseUrl,
    secrets,
    log,
    ...config,
    stopping: stopping.signal,
    resolver,
  });
  let worker: DeliveryWorker | undefined;

  async function stopWorker(): Promise<void> {
    stopping.abort();
    if (!worker) return;
    await removeSchedules(own);
    await worker.stop();
    worker = undefined;
  }

  return {
    api,
    async startWorker() {
      const code = await readFile((await part("workflows")).bundle, "utf8");
      const target = temporalTarget({ TEMPORAL_ADDRESS: (await part("temporal")).address });
      worker = startDeliveryWorker({
        target,
        names: own,
        engine,
        dispatch: config.dispatch,
        log,
        workflowBundle: { code },
      });
      await worker.ready;
    },
    stopWorker,
    async stop() {
      await stopWorker();
      await engine.close();
      await api.stop();
    },
  };
}

async function removeSchedules(names: TemporalNames): Promise<void> {
  const connection = await Connection.connect({ address: (await part("temporal")).address });
  try {
    await deleteSchedules(new TemporalClient({ connection }), names);
  } finally {
    await connection.close();
  }
}
