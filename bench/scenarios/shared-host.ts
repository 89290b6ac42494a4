import { setTimeout as wait } from "node:timers/promises";
import { rows } from "../../src/db/database.ts";
import type { Bench } from "../parts/bench.ts";
import { lastRecorded, untilRunsClosed } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import { readRetryDelays } from "../parts/retry-delays.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HEALTHY = Array.from({ length: 20 }, (_, n) => `/healthy/${n}`);
const BAD = { "/hangs": "never", "/closes": "close", "/fails": { status: 503 } } as const;
/** The number of deliveries to each bad path. Their retries fall due while healthy deliveries last. */
const BAD_EACH = 300;
const POLL_MS = 200;
const TIMEOUT_MS = 300_000;

/**
 * Many tenants of one host, as with an API gateway: the effect of a path that hangs, one that closes the connection
 * and one that fails on twenty that respond after 100 ms, and the delay of retries.
 */
export const sharedHost: Scenario = {
  name: "shared-host",
  what: "one host: a path hangs, one closes the connection, one answers 503; 20 answer after 100 ms: their rate",
  count: { full: 40_000, small: 4_000 },
  targets: { "": { atLeast: 0.9 }, "latest retry": { atMost: 15 }, "hanging in flight": { atLeast: 0.95 } },
  comparisons: [],
  async measure(bench, count) {
    const alone = await measureOnce(bench, count, false);
    const beside = await measureOnce(bench, count, true);
    return [
      { detail: "", unit: "ratio", value: alone.seconds / beside.seconds },
      { detail: "healthy alone", unit: "s", value: alone.seconds },
      { detail: "healthy beside bad", unit: "s", value: beside.seconds },
      { detail: "latest retry", unit: "s overdue at most", value: beside.latestS },
      { detail: "hanging in flight", unit: "part of looks", value: beside.hangingPart },
    ];
  },
};

async function measureOnce(
  bench: Bench,
  count: number,
  besideBad: boolean,
): Promise<{ seconds: number; latestS: number; hangingPart: number }> {
  const paths = Object.fromEntries(HEALTHY.map((path) => [path, { status: 200, delayMs: 100 }]));
  const behaviour: Behaviour = { paths: { ...paths, ...BAD } };
  await using receivers = await startReceivers(bench, [behaviour]);
  await using stage = await openStage(bench, { RETRY_INITIAL_DELAY: "5s", RETRY_BACKOFF_COEFFICIENT: "1" });
  const webhooksAt = (names: readonly string[]) =>
    seedWebhooks(
      stage.db,
      stage.secrets,
      names.map((name) => `${receivers.urls[0]}${name}`),
    );
  const healthy = await webhooksAt(HEALTHY);
  // Warms up connections, windows and compiled code.
  await seedPending(stage, { events: 20, webhooks: healthy });
  await stage.trigger();
  await lastRecorded(stage, healthy, TIMEOUT_MS);
  await untilRunsClosed(stage);
  if (besideBad) {
    await seedPending(stage, { events: BAD_EACH, webhooks: await webhooksAt(Object.keys(BAD)) });
    await stage.trigger();
    // Until each has shown its behaviour and the first retries are due.
    await wait(20_000, undefined, { signal: bench.stopping });
  }
  await seedPending(stage, { events: Math.ceil(count / HEALTHY.length), webhooks: healthy });
  const looks = { all: 0, hanging: 0 };
  using _ = everyLook(() => look(stage, looks));
  const started = Date.now();
  await stage.trigger();
  const ended = await lastRecorded(stage, healthy, TIMEOUT_MS);
  const { max } = await readRetryDelays(stage.db, { firstS: 5, coefficient: 1 }, "%/hangs");
  return {
    seconds: (ended - started) / 1_000,
    latestS: max,
    hangingPart: looks.all === 0 ? Number.NaN : looks.hanging / looks.all,
  };
}

/** Samples whether the hanging path has a request in flight. */
async function look({ db }: Stage, looks: { all: number; hanging: number }): Promise<void> {
  const [found] = await rows<{ hanging: number }>(
    db,
    `select count(*)::int as hanging from webhooks w where w.url like '%hangs' and (
        exists (select from queue q where q.webhook_id = w.id and q.claimed_by is not null)
        or exists (select from retries q where q.webhook_id = w.id and q.claimed_by is not null))`,
  );
  looks.all += 1;
  looks.hanging += found?.hanging ?? 0;
}

function everyLook(work: () => Promise<void>): Disposable {
  let isLooking = false;
  const timer = setInterval(() => {
    if (isLooking) return;
    isLooking = true;
    work()
      .catch(() => {})
      .finally(() => {
        isLooking = false;
      });
  }, POLL_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
