import { rows } from "../../src/lib/pg/database.ts";
import type { Bench } from "../parts/bench.ts";
import { triggerFor, warmUp } from "../parts/dispatching.ts";
import { assertPending, keepPending } from "../parts/keep-pending.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import { readRetryDelays } from "../parts/retry-delays.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HEALTHY = Array.from({ length: 20 }, (_, n) => `/healthy/${n}`);
const HANGS = "/hangs";
const BAD = { [HANGS]: "never", "/closes": "close", "/fails": { status: 503 } } as const;
/**
 * The queue of a path is refilled when it has fewer deliveries: some five seconds' worth of a healthy one. Bad paths
 * always have first attempts left too, so that retries fall due all the time.
 */
const MIN_PENDING = 1_000;
/** The time before the measured one, in seconds: the hanging path has timed out, and the first retries were due. */
const LEAD_S = 20;
const RETRY_DELAY_S = 5;
const LOOK_MS = 200;

/**
 * Many tenants of one host, as with an API gateway: the effect of a path that hangs, one that closes the connection
 * and one that fails on twenty that respond after 100 ms, and the delay of retries.
 */
export const sharedHost: Scenario = {
  name: "shared-host",
  what: "one host: a path hangs, one closes the connection, one answers 503; 20 answer after 100 ms: their rate (count: seconds)",
  count: { full: 60, small: 30 },
  targets: { "": { atLeast: 0.9 }, "latest retry": { atMost: 15 }, "hanging in flight": { atLeast: 0.95 } },
  comparisons: [],
  async measure(bench, seconds) {
    const alone = await measureOnce(bench, seconds, []);
    const beside = await measureOnce(bench, seconds, Object.keys(BAD));
    return [
      { detail: "", unit: "ratio", value: beside.rate / alone.rate },
      { detail: "healthy alone", unit: "deliveries/s", value: alone.rate },
      { detail: "healthy beside bad", unit: "deliveries/s", value: beside.rate },
      { detail: "latest retry", unit: "s overdue at most", value: beside.latestS },
      { detail: "retries of closing", unit: "requests/s", value: (beside.retries["/closes"] ?? 0) / seconds },
      { detail: "retries of failing", unit: "requests/s", value: (beside.retries["/fails"] ?? 0) / seconds },
      { detail: "hanging in flight", unit: "part of looks", value: beside.hangingPart },
      { detail: "hanging in flight at most", unit: "requests", value: beside.hangingMost },
    ];
  },
};

interface Measured {
  /** Requests per second to all healthy paths. */
  rate: number;
  /** The longest delay of a retry of the closing or the failing path, in seconds. */
  latestS: number;
  /** Retries in the measured time, by path. */
  retries: Record<string, number>;
  /** The part of looks at which the hanging path had a request in flight. */
  hangingPart: number;
  hangingMost: number;
}

/** @param bad the bad paths that have webhooks */
async function measureOnce(bench: Bench, seconds: number, bad: readonly string[]): Promise<Measured> {
  const answers = Object.fromEntries(HEALTHY.map((path) => [path, { status: 200, delayMs: 100 }]));
  const behaviour: Behaviour = { paths: { ...answers, ...BAD } };
  await using receivers = await startReceivers(bench, [behaviour]);
  await using stage = await openStage(bench, {
    RETRY_INITIAL_DELAY: `${RETRY_DELAY_S}s`,
    RETRY_BACKOFF_COEFFICIENT: "1",
  });
  const webhooksAt = (paths: readonly string[]) =>
    seedWebhooks(
      stage.db,
      stage.secrets,
      paths.map((path) => `${receivers.urls[0]}${path}`),
    );
  const healthy = await webhooksAt(HEALTHY);
  await warmUp(stage, receivers, healthy);
  const others = bad.length > 0 ? await webhooksAt(bad) : [];
  await using queue = await keepPending(stage, {
    webhooks: [...healthy, ...others],
    counts: async () => {
      const requests = await receivers.paths();
      return [...HEALTHY, ...bad].map((path) => requests[path]?.count ?? 0);
    },
    minEach: MIN_PENDING,
  });
  await Promise.race([triggerFor(stage, LEAD_S), queue.failed]);
  const from = new Date();
  using looks = lookAtHanging(receivers);
  const rates = await queue.measureRates(seconds);
  const retries = await countRetries(stage, from);
  await assertPending(stage, others);
  const { max } = await readRetryDelays(stage.db, { firstS: RETRY_DELAY_S, coefficient: 1 }, `%${HANGS}`);
  for (const path of bad)
    if (path !== HANGS && !retries[path]) throw new Error(`${path} had no retry in the measured time`);
  return {
    rate: rates.slice(0, HEALTHY.length).reduce((sum, rate) => sum + rate, 0),
    latestS: max,
    retries,
    hangingPart: looks.inFlight.filter((count) => count > 0).length / looks.inFlight.length,
    hangingMost: Math.max(...looks.inFlight),
  };
}

/** Retries that started since a time, by path. */
async function countRetries({ db }: Stage, from: Date): Promise<Record<string, number>> {
  const found = await rows<{ path: string; retries: number }>(
    db,
    `select substring(w.url from '/[^/]+$') as path, count(*)::int as retries
      from all_attempts a join all_deliveries d on d.id = a.delivery_id join webhooks w on w.id = d.webhook_id
      where a.number > 1 and a.started > :from group by 1`,
    { from },
  );
  return Object.fromEntries(found.map(({ path, retries }) => [path, retries]));
}

/** Samples the number of requests that the hanging path has in flight until disposed. */
function lookAtHanging(receivers: Receivers): Disposable & { inFlight: number[] } {
  const inFlight: number[] = [];
  const look = async () => inFlight.push((await receivers.paths())[HANGS]?.inFlight ?? 0);
  const timer = setInterval(() => look().catch(() => {}), LOOK_MS);
  return { inFlight, [Symbol.dispose]: () => clearInterval(timer) };
}
