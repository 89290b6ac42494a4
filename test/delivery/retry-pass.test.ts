import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { assignGroups } from "../../src/db/retry-groups.ts";
import { pump } from "../../src/delivery/pump.ts";
import { retryPass } from "../../src/delivery/retry-pass.ts";
import { type Receiver, startReceiver } from "../../src/dev/receiver.ts";
import { freshToken } from "../db/queue.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, queueFor, startEngine } from "./engine-parts.ts";

const DELIVERIES = 300;

let parts: EngineParts;
let failing: Receiver;

beforeEach(async () => {
  parts = await startEngine();
  const certificate = await (await trustedAuthority()).issue(["localhost"]);
  failing = await startReceiver(certificate, async ({ attempt }) => {
    if (attempt > 1) await wait(5);
    return 500;
  });
});
afterEach(async () => {
  await parts.end();
  await failing.close();
});

test("of two passes over one group, as when a worker that was taken for dead is not, one gives way, and no delivery fails for it", async () => {
  await queueFor(parts, failing.url, { webhooks: 1, events: DELIVERIES });
  const token = await freshToken(parts.db);
  const stop = new AbortController().signal;
  await pump(parts.engine, token, stop);
  await assignGroups(parts.db, token.runId);
  const before = { ...token, activity: randomUUID(), attempt: 3 };
  const after = { ...token, activity: randomUUID(), attempt: 1 };
  const [one, other] = await Promise.all([
    retryPass(parts.engine, before, 1, stop),
    retryPass(parts.another(), after, 1, stop),
  ]);
  expect(one.sent + other.sent).toBe(DELIVERIES);
  const states = await rows(
    parts.db,
    "select state, attempts, reason, count(*)::int as n from deliveries group by 1, 2, 3",
  );
  expect(states).toEqual([{ state: "retrying", attempts: 2, reason: null, n: DELIVERIES }]);
});
