import pLimit from "p-limit";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { startRun } from "../support/dispatch-runs.ts";
import { localCertificate } from "../support/receivers.ts";
import { BY_HAND, startTestService, type TestService } from "../support/test-service.ts";
import { eventually, until } from "../support/wait.ts";
import { type Ledger, startLedger } from "./ledger.ts";
import { untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

const FAILING = FULL_SIZE ? 10_000 : 210;
const HEALTHY = 10;
const EVENTS = FULL_SIZE ? 3_000 : 10;
/** Groups of a run, however many webhooks fail and however often it asks; an activity a group. */
const MAX_GROUPS = 41;
const [TO_FAILING, TO_HEALTHY] = [1, 2] as const;

let service: TestService;
let failing: Ledger;
let healthy: Ledger;
/** The last attempt of one failing webhook waits for it, so that the others' deliveries end while webhooks fail, on any machine. */
const lastAttempt = Promise.withResolvers<void>();

/** Makes so many calls, some at once. */
async function inParallel(count: number, call: (n: number) => Promise<unknown>): Promise<void> {
  const limit = pLimit(16);
  await Promise.all(Array.from({ length: count }, (_, n) => limit(() => call(n + 1))));
}

beforeAll(async () => {
  service = await startTestService({
    ...BY_HAND,
    RETRY_INITIAL_DELAY: FULL_SIZE ? "5s" : "500ms",
    RETRY_BACKOFF_COEFFICIENT: "1.5",
    MAX_WEBHOOKS: "20000",
  });
  const certificate = await localCertificate();
  failing = await startLedger(certificate, 0, async (path, nth) => {
    if (path === "/1" && nth === 4) await lastAttempt.promise;
    return 500;
  });
  healthy = await startLedger(certificate, 0);
  await inParallel(FAILING, (n) => service.register(`${failing.url}/${n}`, { process: TO_FAILING }));
  await inParallel(HEALTHY, (n) => service.register(`${healthy.url}/${n}`, { process: TO_HEALTHY }));
});
afterAll(async () => {
  await service?.stop();
  await Promise.all([failing?.close(), healthy?.close()]);
});

test("other webhooks get their first attempts while very many webhooks fail, in one run of few groups and a short history", async () => {
  expect((await service.publish()).deliveriesQueued).toBe(FAILING);
  const first = await startRun(service);
  await until(() => failing.entries.length >= FAILING);
  await inParallel(EVENTS, service.publishDocument);
  const second = await startRun(service);
  const outcomes = () =>
    rows(
      service.db,
      `select w.process, d.state, d.attempts, count(*)::int as n from all_deliveries d join webhooks w on w.id = d.webhook_id
        group by 1, 2, 3 order by 1`,
    );
  const delivered = { process: TO_HEALTHY, state: "delivered", attempts: 1, n: EVENTS * HEALTHY };
  await eventually(async () => expect(await outcomes()).toContainEqual(delivered));
  expect(await service.db("retries").first()).toBeDefined();
  lastAttempt.resolve();
  await untilAllFinal(service.db);
  expect(await outcomes()).toEqual([
    { process: TO_FAILING, state: "failed", attempts: 4, n: FAILING },
    delivered,
  ]);
  expect([failing.entries.length, healthy.entries.length]).toEqual([4 * FAILING, EVENTS * HEALTHY]);

  const groups = await rows<{ webhooks: number; groups: number }>(
    service.db,
    "select count(*)::int as webhooks, count(distinct group_number)::int as groups from run_groups group by run_id",
  );
  // All in the one run, and none of the others.
  expect(groups).toEqual([{ webhooks: FAILING, groups: expect.any(Number) }]);
  expect(groups[0]?.groups).toBeLessThanOrEqual(MAX_GROUPS);

  await Promise.all([first.result(), second.result()]);
  const histories = await Promise.all([first, second].map((run) => run.fetchHistory()));
  const lengths = histories.map(({ events }) => events?.length ?? 0);
  tell(`${FAILING} webhooks failing: histories of ${lengths.join(", ")} events`);
  // Thousands less than if each webhook were a group of its own.
  expect(Math.max(...lengths)).toBeLessThan(15 * MAX_GROUPS + 100);
});
