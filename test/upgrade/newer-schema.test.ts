import { expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { transactionWithRetry } from "../../src/lib/pg/deadlock.ts";
import { startRun } from "../support/dispatch-runs.ts";
import { fileService, WOKEN } from "../support/test-service.ts";

const service = fileService({ ...WOKEN, RETRY_INITIAL_DELAY: "50ms" });

/** What additive migrations of a newer release do: columns in every table, with a default too, an index, a table. */
async function migrateFurther(): Promise<number> {
  const tables = await rows<{ name: string }>(
    service.db,
    `select oid::regclass::text as name from pg_class
      where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
        and relname not like 'knex_%'`,
  );
  // The service's own statements take locks of the same tables in another order.
  await transactionWithRetry(service.db, async (trx) => {
    for (const { name } of tables) {
      await trx.raw("alter table ?? add column newer text, add column newer_count int not null default 7", [
        name,
      ]);
    }
    await trx.raw("create index newer_index on webhooks (newer)");
    await trx.raw("create table newer_table (id int primary key)");
    await trx("knex_migrations").insert({ name: "9999-newer", batch: 2, migration_time: new Date() });
  });
  return tables.length;
}

/** Delivers to a healthy and a recovering receiver, and sends again what a third one accepts at the fifth attempt. */
async function useEverything(): Promise<void> {
  for (const failures of [0, 1, 4]) {
    await service.endpoint(({ attempt }) => (attempt > failures ? 200 : 503));
  }
  const { eventId } = await service.publish();
  const ends = async () => {
    const deliveries = await service.untilFinal(eventId);
    return deliveries
      .map(({ state, attemptCount }) => [state, attemptCount])
      .sort((one, other) => (one[1] as number) - (other[1] as number));
  };
  expect(await ends()).toEqual([
    [DeliveryState.DELIVERED, 1],
    [DeliveryState.DELIVERED, 2],
    [DeliveryState.FAILED, 4],
  ]);
  const [failed] = (await service.deliveries.listDeliveries({ eventId, states: [DeliveryState.FAILED] }))
    .deliveries;
  await service.deliveries.sendAgain({ deliveryId: failed?.id as string });
  expect(await ends()).toEqual([
    [DeliveryState.DELIVERED, 1],
    [DeliveryState.DELIVERED, 2],
    [DeliveryState.DELIVERED, 5],
  ]);
  await service.removeWebhooks();
}

test("a running service continues when a newer release migrates the database, and starts on it", async () => {
  await useEverything();
  expect(await migrateFurther()).toBeGreaterThan(10);
  await useEverything();
  // With its own connections and migrations, as after a roll back.
  const worker = await service.startWorker();
  await useEverything();
  await worker.stop();
  const retention = await startRun({ ...service, scheduleId: service.retentionScheduleId });
  expect(await retention.result()).toHaveProperty("summary");
});
