import { setTimeout as wait } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { assignGroups } from "../../src/db/queue/retry-groups.ts";
import { pump } from "../../src/delivery/pump.ts";
import { retryPass } from "../../src/delivery/retry-pass.ts";
import { type Receiver, startReceiver } from "../../src/dev/receiver.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { type EngineParts, freshRun, queueFor, startEngine } from "./engine-parts.ts";

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

test("of two passes over one group, as when a worker that was taken for dead is not, each delivery is tried by one, and none fails for it", async () => {
  await queueFor(parts, failing.url, { webhooks: 1, events: DELIVERIES });
  const runId = await freshRun(parts.db);
  const stop = new AbortController().signal;
  await pump(parts.engine, runId, stop);
  await assignGroups(parts.db, runId);
  const [one, other] = await Promise.all([
    retryPass(parts.engine, runId, 1, stop),
    retryPass(parts.another(), runId, 1, stop),
  ]);
  expect(one.sent + other.sent).toBe(DELIVERIES);
  expect(failing.received).toHaveLength(2 * DELIVERIES);
  const states = await rows(
    parts.db,
    "select state, attempts, reason, count(*)::int as n from all_deliveries group by 1, 2, 3",
  );
  expect(states).toEqual([{ state: "retrying", attempts: 2, reason: null, n: DELIVERIES }]);
});
