import { randomBytes, randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { openDatabase } from "../../../src/db/database.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import { createTestDatabase } from "../../support/database.ts";
import { anEvent } from "../../support/new-event.ts";
import { type PlanNode, plansOf } from "../explained.ts";

const database = await createTestDatabase();
const db = openDatabase(database.url, { max: 2 });
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** The pages of `webhooks` and its indexes that a plan read. */
function pagesOfWebhooks(node: PlanNode): number {
  const own = (node["Shared Hit Blocks"] ?? 0) + (node["Shared Read Blocks"] ?? 0);
  if (node["Relation Name"] === "webhooks") return own;
  return (node.Plans ?? []).reduce((sum, child) => sum + pagesOfWebhooks(child), 0);
}

test("publishing an event of a type with few webhooks reads no more than these, among 20,000 of two other types", async () => {
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select case when n <= 10 then 1 else 2 + n % 2 end, url, url, :apiKeyId::uuid, :secret::bytea
      from generate_series(1, 20010) n, lateral (select 'https://example.com/' || n as url) u`,
    { apiKeyId: randomUUID(), secret: randomBytes(8) },
  );
  await db.raw("analyze webhooks");
  let queued: unknown;
  const [insert] = await plansOf(
    db,
    async (trx) => {
      queued = await publishEvents(trx, [anEvent()]);
    },
    ["analyze", "buffers"],
  );
  expect(queued).toEqual([expect.objectContaining({ queued: 10 })]);
  expect(pagesOfWebhooks(insert as PlanNode)).toBeLessThan(50);
});
