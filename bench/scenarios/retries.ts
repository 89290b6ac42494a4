import { rows } from "../../src/lib/pg/database.ts";
import type { Bench } from "../parts/bench.ts";
import { triggerFor, warmUp } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import { readRetryDelays } from "../parts/retry-delays.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

const HOSTS = 20;
/** Deliveries queued per second of the measurement, more than can be sent. */
const PER_SECOND = 20_000;
const FAILING_PART = 0.01;

/** Retries due during first attempts at full speed: their delay and cost. */
export const retries: Scenario = {
  name: "retries",
  what: "full-speed first attempts of which 1 % fail: how late the retries start, and the first attempts' rate",
  count: { full: 120, small: 30 },
  targets: { "": { atLeast: 0.9 }, "retry delay p99": { atMost: 10 } },
  comparisons: [],
  async measure(bench, seconds) {
    const alone = await measureOnce(bench, seconds, 0);
    const beside = await measureOnce(bench, seconds, FAILING_PART);
    return [
      { detail: "", unit: "ratio", value: beside.rate / alone.rate },
      { detail: "alone", unit: "first attempts/s", value: alone.rate },
      { detail: "beside retries", unit: "first attempts/s", value: beside.rate },
      { detail: "retries", unit: "started", value: beside.started },
      { detail: "retry delay p99", unit: "s overdue", value: beside.p99 },
    ];
  },
};

async function measureOnce(
  bench: Bench,
  seconds: number,
  failingPart: number,
): Promise<{ rate: number; started: number; p99: number }> {
  const behaviours = Array.from({ length: HOSTS }, () => ({ status: 200, failingPart }));
  await using receivers = await startReceivers(bench, behaviours);
  await using stage = await openStage(bench, { RETRY_INITIAL_DELAY: "5s", RETRY_BACKOFF_COEFFICIENT: "2" });
  const webhooks = await seedWebhooks(stage.db, stage.secrets, receivers.urls);
  await warmUp(stage, receivers, webhooks);
  await seedPending(stage, { events: Math.ceil((seconds * PER_SECOND) / HOSTS), webhooks });
  const [{ at } = { at: new Date() }] = await rows<{ at: Date }>(stage.db, "select now() as at");
  await triggerFor(stage, seconds);
  const [found] = await rows<{ firsts: number }>(
    stage.db,
    "select count(*)::int as firsts from all_attempts where number = 1 and started > :at",
    { at },
  );
  const delays = await readRetryDelays(stage.db, { firstS: 5, coefficient: 2 });
  return { rate: (found?.firsts ?? 0) / seconds, started: delays.started, p99: delays.p99 };
}
