import { randomBytes } from "node:crypto";
import { Logger, run, runMigrations } from "graphile-worker";
import ipaddr from "ipaddr.js";
import pg from "pg";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import { post } from "../../src/delivery/request/post.ts";
import { buildRequest } from "../../src/delivery/request/request.ts";
import { createSigner } from "../../src/delivery/request/signature.ts";
import { createAddressGuard, createHttpClient } from "../../src/lib/egress/index.ts";
import { type ClaimedWebhook, parseTarget } from "../../src/webhooks/claimed-webhooks.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { newSealedSecret } from "../../src/webhooks/webhook-secrets.ts";
import { serveCalls } from "../parts/child.ts";
import { PROCESS, payload } from "../parts/payload.ts";

/** The settings of the job queue. */
export interface PeerSettings {
  concurrentJobs: number;
  /** The number of jobs fetched at once. */
  localQueue: number;
  /** The time for which completions are collected, in milliseconds. */
  completeJobBatchDelay: number;
  /** The number of connections that record attempts. */
  recorders: number;
}

/** The calls accepted by the job queue's process. */
export type PeerMethods = {
  /** Queues jobs, then processes them: a signed and recorded POST each. Returns seconds. */
  run(argument: { databaseUrl: string; url: string; jobs: number; settings: PeerSettings }): Promise<number>;
};

const TASK = "post";
const RECORD = {
  name: "record",
  text: `insert into attempts (delivery_id, number, started, duration_ms, status, error, response_start)
    values ($1, 1, $2, $3, $4, $5, $6)`,
};

// Uses the service's client, signature and request, so that only the queue differs.
const box = createSecretBox(randomBytes(32));
const WEBHOOK_ID = 1n;
const secrets = [{ webhookId: WEBHOOK_ID, sealed: newSealedSecret(box, WEBHOOK_ID), expires: null }];
const sign = createSigner(box);
const TIMEOUT_MS = 15_000;
const LOOPBACK = ipaddr.parseCIDR("127.0.0.0/8");

/** A UUIDv7, as deliveries have, because the attempts table is partitioned by its time. */
function newId(): string {
  const hex = Buffer.concat([Buffer.alloc(6), randomBytes(10)]);
  hex.writeUIntBE(Date.now(), 0, 6);
  hex.writeUInt8(0x70 | (hex.readUInt8(6) & 0x0f), 6);
  hex.writeUInt8(0x80 | (hex.readUInt8(8) & 0x3f), 8);
  return hex.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

serveCalls({
  async run({ databaseUrl, url, jobs, settings }) {
    await runMigrations({ connectionString: databaseUrl });
    const pool = new pg.Pool({ connectionString: databaseUrl, max: settings.recorders });
    const client = createHttpClient(createAddressGuard([LOOPBACK]), 1_000);
    await pool.query(
      `select count(*) from graphile_worker.add_jobs(array(
        select json_populate_record(null::graphile_worker.job_spec, json_build_object('identifier', '${TASK}', 'payload', json_build_object('orderId', n)))
          from generate_series(1, $1::int) n))`,
      [jobs],
    );
    await pool.query("vacuum analyze");
    await pool.query("checkpoint");

    const webhook: ClaimedWebhook = {
      id: WEBHOOK_ID,
      revision: 1n,
      process: PROCESS,
      target: parseTarget(url),
      secrets,
      installedAppId: null,
    };
    const finished = Promise.withResolvers<void>();
    let done = 0;
    const started = performance.now();
    const runner = await run({
      taskList: {
        async [TASK](job) {
          const { orderId } = job as { orderId: number };
          const id = newId();
          const content = { payload: payload(orderId), userId: "tenant-1" };
          const request = buildRequest({ id, webhook }, content, sign, { headers: [] });
          const outcome = await new Promise<Outcome>((outcome) => post(client, request, TIMEOUT_MS, outcome));
          const { status, error, responseStart, durationMs } = outcome;
          await pool.query({
            ...RECORD,
            values: [id, outcome.started, durationMs, status, error, responseStart],
          });
          if (!outcome.delivered) throw new Error(error ?? `status ${status}`);
          done += 1;
          if (done === jobs) finished.resolve();
        },
      },
      preset: {
        worker: {
          connectionString: databaseUrl,
          concurrentJobs: settings.concurrentJobs,
          maxPoolSize: 10,
          localQueue: { size: settings.localQueue },
          completeJobBatchDelay: settings.completeJobBatchDelay,
          failJobBatchDelay: settings.completeJobBatchDelay,
          useNodeTime: true,
          logger: new Logger(() => () => {}),
        },
      },
      noHandleSignals: true,
    });
    await finished.promise;
    const seconds = (performance.now() - started) / 1_000;
    await runner.stop();
    await client.destroy();
    await pool.end();
    return seconds;
  },
} satisfies PeerMethods);
