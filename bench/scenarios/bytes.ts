import { type Db, rows } from "../../src/lib/pg/database.ts";
import { GRACE_DAYS, retentionStep } from "../../src/retention/retention.ts";
import { startChild } from "../parts/child.ts";
import { databaseTime, walPosition, walSince } from "../parts/database-work.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const WEBHOOKS = 10;
const FAILING_PART = 0.02;
/** The size of a payload, which is subtracted, in bytes. */
const PAYLOAD_BYTES = 400;

/** The cost of a delivery for PostgreSQL from publishing to the log and to its deletion, including statistics. */
export const bytes: Scenario = {
  name: "bytes",
  what: "WAL, disk and PostgreSQL's processor time per delivery, published over gRPC, 2 % failing, until retention deletes it",
  count: { full: 100_000, small: 10_000 },
  targets: { "": { atMost: 1_500 }, disk: { atMost: 350 } },
  comparisons: [],
  async measure(bench, count) {
    const behaviours = Array.from({ length: WEBHOOKS }, () => ({ status: 200, failingPart: FAILING_PART }));
    await using receivers = await startReceivers(bench, behaviours);
    await using stage = await openStage(bench, { RETRY_INITIAL_DELAY: "1s", RETRY_BACKOFF_COEFFICIENT: "1" });
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    const webhooks = await seedWebhooks(stage.db, stage.secrets, receivers.urls);
    await warmUp(stage, receivers, webhooks);
    const sizeBefore = await diskUse(stage.db);
    const events = Math.ceil(count / WEBHOOKS);
    const deliveries = events * WEBHOOKS;
    const delivering = await workOf(stage.db, async () => {
      await publisher.call("unary", {
        grpcUrl: stage.service.grpcUrl,
        key: stage.adminKey,
        events,
        concurrency: 64,
      });
      // Failing deliveries are attempted four times, so this count is approximate. The end is when nothing is open.
      await dispatch(stage, { what: "delivering", requests: deliveries, receivers, tellsFailures: false });
      await untilRunsClosed(stage);
      // What autovacuum does later.
      await stage.db.raw("vacuum (analyze)");
    });
    // Space of these tables is reused; their size depends on how many deliveries were open at once.
    await stage.db.raw("vacuum full queue, retries, rollup_deltas");
    const disk = (await diskUse(stage.db)) - sizeBefore;
    const deleting = await workOf(stage.db, () => deleteAll(stage.db));
    const payloads = (events * PAYLOAD_BYTES) / deliveries;
    return [
      {
        detail: "",
        unit: "bytes of WAL",
        value: (delivering.walBytes + deleting.walBytes) / deliveries - payloads,
      },
      { detail: "disk", unit: "bytes", value: disk / deliveries - payloads },
      { detail: "processor", unit: "us", value: (delivering.cpuUs + deleting.cpuUs) / deliveries },
    ];
  },
};

/** PostgreSQL's work during an action. */
async function workOf(db: Db, action: () => Promise<void>): Promise<{ walBytes: number; cpuUs: number }> {
  const position = await walPosition(db);
  const before = await databaseTime(db);
  await action();
  const cpuUs = (await databaseTime(db)) - before;
  return { walBytes: await walSince(db, position), cpuUs };
}

/** Retention on the day on which everything stored has expired. */
async function deleteAll(db: Db): Promise<void> {
  for (let dropped = 0; dropped === 0; ) {
    dropped = (await retentionStep(db, db, -GRACE_DAYS - 1)).partitions.length;
  }
}

/** The size of all tables and indexes, in bytes. */
async function diskUse(db: Db): Promise<number> {
  const [row] = await rows<{ bytes: number }>(
    db,
    `select sum(pg_total_relation_size(oid))::float8 as bytes from pg_class
      where relkind = 'r' and relnamespace = 'public'::regnamespace`,
  );
  return row?.bytes ?? 0;
}
