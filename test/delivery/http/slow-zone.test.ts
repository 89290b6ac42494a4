import { afterEach, expect, test } from "vitest";
import { startReceiver } from "../../../demo/receiver.ts";
import { rows } from "../../../src/db/database.ts";
import { NameResolver } from "../../../src/delivery/http/name-resolver.ts";
import { startNameServer } from "../../support/name-server.ts";
import { trustedAuthority } from "../../support/test-service.ts";
import { freshRun, pump, queueFor, startEngine } from "../engine-parts.ts";

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

test("hundreds of names of a slow zone do not hold all slots until their lookups time out", async () => {
  const nameServer = await startNameServer(({ name }) =>
    name === "healthy.example" ? { addresses: ["127.0.0.1"] } : undefined,
  );
  const parts = await startEngine(
    { DELIVERY_TIMEOUT: "60s" },
    { resolver: new NameResolver({ servers: [nameServer.address] }) },
  );
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["healthy.example"]));
  ends.push(nameServer.close, receiver.close, parts.end);
  const healthy = `https://healthy.example:${receiver.port}`;
  const stop = new AbortController();
  // So that the address is cached: a burst of queries is more than a name server in this process can take at once.
  await queueFor(parts, healthy, { webhooks: 1, events: 1 });
  await pump(parts.engine, await freshRun(parts.db), stop.signal);

  await queueFor(parts, "https://slow.example", { webhooks: 300, events: 2 });
  await parts.db.raw(
    "update webhooks set target_url = replace(target_url, '//slow', '//' || id || '.slow') where target_url like '%slow%'",
  );
  await queueFor(parts, `${healthy}/more`, { webhooks: 50, events: 5 });
  const pumped = pump(parts.engine, await freshRun(parts.db), stop.signal);
  await receiver.until((received) => received.length === 1 + 50 * 5);
  const [errors] = await rows(
    parts.db,
    `select count(*) filter (where error like '%more than 16 names under slow.example take over 1 s') > 0 as ended,
        count(*) filter (where error like '%timed out%')::int as timed_out
      from all_attempts`,
  );
  expect(errors).toEqual({ ended: true, timed_out: 0 });
  stop.abort();
  await pumped;
});
