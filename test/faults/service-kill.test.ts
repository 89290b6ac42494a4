import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { openDatabase } from "../../src/db/database.ts";
import { findRunningPostgres } from "../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { checkAttempts, outcomes, PACE, publishMany, register, untilAllFinal } from "./parts.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** Events; each goes to three webhooks. */
const EVENTS = 40;
/** What a worker may have in flight or unrecorded when it is killed; so many requests may come twice. */
const IN_FLIGHT = 192;

let dataDir: string;
let environment: Record<string, string>;
let service: ServiceProcess;
const receivers: Receiver[] = [];

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "webhook-test-kill-"));
  const authority = await createLocalAuthority();
  const certificate = await authority.issue(["localhost"]);
  await writeFile(path.join(dataDir, "authority.pem"), authority.cert);
  const replies: ((attempt: number) => number)[] = [
    () => 200,
    (attempt) => (attempt < 3 ? 503 : 200),
    () => 500,
  ];
  for (const reply of replies) {
    receivers.push(
      await startReceiver(certificate, async ({ attempt }) => {
        await wait(30);
        return reply(attempt);
      }),
    );
  }
  environment = {
    DATA_DIR: dataDir,
    NODE_EXTRA_CA_CERTS: path.join(dataDir, "authority.pem"),
    ...PACE,
  };
  service = await startServiceProcess(environment);
});

afterAll(async () => {
  await service?.end("SIGTERM");
  await Promise.all(receivers.map((receiver) => receiver.close()));
  await removeDataDir(dataDir);
  await rm(dataDir, { recursive: true, force: true });
});

describe("kill -9 of the service amid a dispatch, and a restart", () => {
  test("loses no delivery, records at most four attempts each, and repeats under the same id", async () => {
    const adminKey = (await readFile(path.join(dataDir, "admin-key"), "utf8")).trim();
    for (const { url } of receivers) await register(service.grpcPort, adminKey, `${url}/`);
    await publishMany(service.grpcPort, adminKey, EVENTS);
    const [good, recovering, failing] = receivers as [Receiver, Receiver, Receiver];

    for (const enough of [20, 60]) {
      await Promise.race([
        good.until((received) => received.length >= enough),
        failing.until((received) => received.length >= enough),
      ]);
      await service.end("SIGKILL");
      // The embedded parts of the killed service are still there, and are taken over.
      service = await startServiceProcess(environment);
    }

    const url = await findRunningPostgres(dataDir);
    const db = openDatabase(url as string, { max: 1 });
    try {
      await untilAllFinal(db);
      await checkAttempts(db);
      const byState = await outcomes(db);
      const count = (state: string) =>
        byState.filter((row) => row.state === state).reduce((sum, { n }) => sum + n, 0);
      expect({ delivered: count("delivered"), failed: count("failed") }).toEqual({
        delivered: 2 * EVENTS,
        failed: EVENTS,
      });
      const recorded = byState.reduce((sum, { attempts, n }) => sum + attempts * n, 0);
      const requests = receivers.flatMap(({ received }) => received);
      expect(new Set(requests.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(3 * EVENTS);
      expect(requests.length).toBeGreaterThanOrEqual(recorded);
      expect(requests.length - recorded).toBeLessThanOrEqual(2 * IN_FLIGHT);
      // It accepts a delivery with its third request at the earliest.
      expect(recovering.received.length).toBeGreaterThanOrEqual(3 * EVENTS);
    } finally {
      await db.destroy();
    }
  });
});
