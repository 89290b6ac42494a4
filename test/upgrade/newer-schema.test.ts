import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/db/database.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service?.stop());

/** What additive migrations of a newer release do: columns in every table, with a default too, an index, a table. */
async function migrateFurther(): Promise<number> {
  const tables = await rows<{ name: string }>(
    service.db,
    `select oid::regclass::text as name from pg_class
      where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
        and relname not like 'knex_%'`,
  );
  await service.db.transaction(async (trx) => {
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

/** Delivers to a healthy, a recovering and a failing receiver, and sends what failed again. */
async function useEverything(): Promise<void> {
  const replies = [() => 200, ({ attempt }: { attempt: number }) => (attempt < 3 ? 503 : 200), () => 500];
  for (const reply of replies) await service.register(`${(await service.receiver(reply)).url}/`);
  const { eventId } = await service.publish();
  const deliveries = await service.untilFinal(eventId);
  expect(deliveries.map(({ state, attemptCount }) => [state, attemptCount]).sort()).toEqual([
    [DeliveryState.DELIVERED, 1],
    [DeliveryState.DELIVERED, 3],
    [DeliveryState.FAILED, 4],
  ]);
  const failed = deliveries.find(({ state }) => state === DeliveryState.FAILED);
  await service.deliveries.sendAgain({ deliveryId: failed?.id as string });
  const again = (await service.untilFinal(eventId)).find(({ id }) => id === failed?.id);
  expect(again).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 8 });
  await service.removeWebhooks();
}

test("a running service goes on when a newer release migrates the database, and starts on it", async () => {
  await useEverything();
  expect(await migrateFurther()).toBeGreaterThan(10);
  await useEverything();
  // With its own connections and migrations, as after a roll back.
  const worker = await service.startWorker();
  await useEverything();
  await worker.stop();
  await service.temporal.schedule.getHandle(service.retentionScheduleId).trigger();
  const retention = async () => {
    const found = [];
    const query = `WorkflowType = "deleteExpired" and WorkflowId STARTS_WITH "${service.retentionScheduleId}"`;
    for await (const run of service.temporal.workflow.list({ query })) found.push(run.status.name);
    return found;
  };
  await expect.poll(retention).toEqual(["COMPLETED"]);
});
