import { randomUUID } from "node:crypto";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { publishEvents } from "../../src/events/publish.ts";
import { queueTestEvent } from "../../src/events/test-events.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import { ensurePartitions, isMissingPartition } from "../../src/schema/partitions.ts";
import { claim, openQueueDatabase, queue, record } from "../queue/queue.ts";
import { databaseTime } from "../support/database-time.ts";
import { anEvent } from "../support/new-event.ts";
import { DAYS, dropAll, orderly, weekFrom } from "./partition-parts.ts";

const db = await openQueueDatabase();
let now: number;
// Files of the same worker need them.
afterAll(() => ensurePartitions(db, DAYS));

describe("a row whose partition is missing", () => {
  beforeEach(async () => {
    await ensurePartitions(db, DAYS);
    now = (await databaseTime(db)).getTime();
  });

  test("of an event is stored, and of many publishers at once, and none gets an error: its partition is made", async () => {
    await queue(db, 0);
    await dropAll(db);
    const publishing = Array.from({ length: 8 }, () => publishEvents(db, [anEvent(), anEvent()]));
    const made = expect.objectContaining({ queued: 1, duplicate: false });
    expect((await Promise.all(publishing)).flat()).toEqual(Array(16).fill(made));
    expect(await db("events").pluck("id")).toHaveLength(16);
    await orderly(db, weekFrom(now));
  });

  test("of a test event, of the log or of an attempt is stored, too, and once", async () => {
    const webhookId = await queue(db, 2);
    const [one, other] = (await claim(db)) as [ClaimedDelivery, ClaimedDelivery];
    await dropAll(db, ["deliveries", "attempts"]);
    expect((await record(db, [one], 200)).size).toBe(1);
    expect((await record(db, [other], 500)).size).toBe(1);
    for (const table of ["deliveries", "attempts"]) expect(await db(table)).toHaveLength(1);
    await dropAll(db);
    const made = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
    expect(await queueTestEvent(db, "everything", made)).not.toBeNull();
    expect(await db("events").pluck("test")).toEqual([true]);
  });

  test("fails its transaction, which only the caller can repeat", async () => {
    await dropAll(db);
    const failed = await db
      .transaction((trx) => publishEvents(trx, [anEvent()]))
      .catch((error: unknown) => error);
    expect([isMissingPartition(failed), isMissingPartition(new Error("another"))]).toEqual([true, false]);
  });
});
