import { randomBytes, randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { inspect } from "node:util";
import { createClient } from "@connectrpc/connect";
import { expect, vi } from "vitest";
import { type Certificate, createLocalAuthority } from "../../demo/certificates.ts";
import { EventService, WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { type Db, openDatabase, rows } from "../../src/db/database.ts";
import { imbalance, readLedger } from "../../src/db/deliveries/ledger.ts";
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from "../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";
import {
  type EmbeddedTemporal,
  startEmbeddedTemporal,
} from "../../src/embedded/temporal/embedded-temporal.ts";
import { SEARCH_ATTRIBUTES } from "../../src/temporal/search-attributes.ts";
import { anyPort } from "../support/any-port.ts";
import { keyedTransport } from "../support/test-service.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** A PostgreSQL and a Temporal of a test file's own, to be killed. */
export interface FaultParts {
  postgres: EmbeddedPostgres;
  temporal: EmbeddedTemporal;
  db: Db;
  certificate: Certificate;
  adminKey: string;
  /** Settings for services on these parts: short times, and the authority of the local receivers. */
  environment: Record<string, string>;
  end(): Promise<void>;
}

/** Short times: four attempts take a few seconds, and what a killed worker held is taken over soon. */
export const PACE = {
  DISPATCH_INTERVAL: "1s",
  RETRY_INITIAL_DELAY: "500ms",
  RETRY_BACKOFF_COEFFICIENT: "1.5",
  HEARTBEAT_TIMEOUT: "3s",
  DELIVERY_TIMEOUT: "30s",
  DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8",
};

/** Starts the parts in a folder of their own. */
export async function startFaultParts(): Promise<FaultParts> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-faults-"));
  const progress = () => {};
  const [postgres, temporal] = await Promise.all([
    startEmbeddedPostgres({ dataDir: folder, progress, port: await anyPort() }),
    startEmbeddedTemporal({
      dataDir: folder,
      progress,
      port: await anyPort(),
      uiPort: await anyPort(),
      searchAttributes: SEARCH_ATTRIBUTES,
    }),
  ]);
  const authority = await createLocalAuthority();
  const authorityFile = path.join(folder, "authority.pem");
  await writeFile(authorityFile, authority.cert);
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const db = openDatabase(postgres.url, { max: 2, applicationName: "test" });
  return {
    postgres,
    temporal,
    db,
    adminKey,
    certificate: await authority.issue(["localhost", "127.0.0.1"]),
    environment: {
      DATABASE_URL: postgres.url,
      TEMPORAL_ADDRESS: temporal.address,
      SECRET_KEY: randomBytes(32).toString("base64"),
      ADMIN_KEY: adminKey,
      NODE_EXTRA_CA_CERTS: authorityFile,
      ...PACE,
    },
    async end() {
      await db.destroy();
      await temporal.stop();
      await postgres.stop();
      await removeDataDir(folder);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Registers a webhook, for OrderDispatched unless told otherwise. */
export async function register(
  grpcPort: number,
  adminKey: string,
  url: string,
  process: WebhookProcess = WebhookProcess.ORDER_DISPATCHED,
): Promise<bigint> {
  const client = createClient(WebhookService, keyedTransport(grpcPort, adminKey));
  const { webhook } = await client.createWebhook({ process, url });
  return webhook?.id as bigint;
}

/** Publishes `count` orders, one after the other. */
export async function publishMany(grpcPort: number, adminKey: string, count: number): Promise<void> {
  const client = createClient(EventService, keyedTransport(grpcPort, adminKey));
  for (let n = 1; n <= count; n += 1) {
    await client.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "tenant-1",
      data: {
        case: "orderDispatched",
        value: { orderId: BigInt(n), orderNumber: `SO-${n}`, dispatchedAt: { seconds: 1_790_000_000n } },
      },
    });
  }
}

/** Deliveries by state and recorded attempts. */
export function outcomes(db: Db): Promise<{ state: string; attempts: number; n: number }[]> {
  return rows(
    db,
    "select state, attempts, count(*)::int as n from all_deliveries group by 1, 2 order by 1, 2",
  );
}

/** Waits until every delivery has come to an end. */
export async function untilAllFinal(db: Db, timeoutMs = 200_000): Promise<void> {
  const open = async () => {
    try {
      return (await outcomes(db)).filter(
        ({ state }) => !["delivered", "failed", "cancelled"].includes(state),
      );
    } catch {
      return "the database is unavailable";
    }
  };
  await expect.poll(open, { timeout: timeoutMs, interval: 200 }).toEqual([]);
}

/**
 * The recorded attempts must be numbered from 1 without a gap, as many as the delivery says, four at most; and the ledger
 * must balance.
 */
export async function checkAttempts(db: Db): Promise<void> {
  const wrong = await rows(
    db,
    `select d.id, d.attempts, count(a.number)::int as recorded, max(a.number) as highest
      from all_deliveries d left join all_attempts a on a.delivery_id = d.id
      group by d.id, d.attempts having count(a.number) <> d.attempts or coalesce(max(a.number), 0) <> d.attempts or d.attempts > 4`,
  );
  expect(wrong).toEqual([]);
  const ledger = await readLedger(db);
  expect(imbalance(ledger), `accepted deliveries that are nowhere: ${inspect(ledger)}`).toBe(0n);
}
