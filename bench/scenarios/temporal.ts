import { setTimeout as wait } from "node:timers/promises";
import type { Bench } from "../parts/bench.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";

const FAILING = 100;
/** Short retry delays: four attempts within seconds. Delays do not affect the number of events. */
const SHORT_RETRY_DELAYS = { RETRY_INITIAL_DELAY: "1s", RETRY_BACKOFF_COEFFICIENT: "1.5" };

/** The number of events that Temporal stores in the histories of runs. */
export const temporal: Scenario = {
  name: "temporal",
  what: "Temporal events written per 1,000 deliveries, and per failing webhook",
  count: { full: 100_000, small: 20_000 },
  targets: { "": { atMost: 10 }, "failing webhook": { atMost: 15 } },
  comparisons: [],
  async measure(bench, count) {
    const delivered = await eventsOfDrain(bench, count);
    const failing = await eventsOfFailing(bench);
    return [
      { detail: "", unit: "events per 1,000", value: (1_000 * delivered) / count },
      { detail: "failing webhook", unit: "events each", value: failing / FAILING, count: FAILING },
    ];
  },
};

async function eventsOfDrain(bench: Bench, count: number): Promise<number> {
  await using receivers = await startReceivers(bench, [{ status: 200 }]);
  await using stage = await openStage(bench);
  const webhooks = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[0]}/hooks`]);
  await warmUp(stage, receivers, webhooks);
  return await eventsDuring(stage, async () => {
    await seedPending(stage, { events: count, webhooks });
    await dispatch(stage, { what: "delivering", requests: count, receivers });
  });
}

/** One delivery to each of a hundred webhooks, on different hosts that fail at different times. */
async function eventsOfFailing(bench: Bench): Promise<number> {
  const behaviours = Array.from({ length: FAILING }, (_, n) => ({ status: 500, delayMs: 5 * n }));
  await using receivers = await startReceivers(bench, behaviours);
  await using stage = await openStage(bench, SHORT_RETRY_DELAYS);
  const urls = receivers.urls.map((url) => `${url}/hooks`);
  const webhooks = await seedWebhooks(stage.db, stage.secrets, urls);
  return await eventsDuring(stage, async () => {
    await seedPending(stage, { events: 1, webhooks });
    await dispatch(stage, { what: "failing four times", requests: 4 * FAILING, receivers });
  });
}

/** The number of events that runs wrote during `work`. */
async function eventsDuring(stage: Stage, work: () => Promise<void>): Promise<number> {
  const before = await eventsWritten(stage);
  await work();
  await untilRunsClosed(stage);
  return (await eventsWritten(stage)) - before;
}

/** The total of all executions when none is running: a run closes in the database before it ends in Temporal. */
async function eventsWritten({ temporal: client, bench }: Stage): Promise<number> {
  let events = 0;
  for await (const { workflowId, runId } of client.workflow.list()) {
    const handle = client.workflow.getHandle(workflowId, runId);
    let about = await handle.describe();
    while (about.status.name === "RUNNING") {
      await wait(100, undefined, { signal: bench.stopping });
      about = await handle.describe();
    }
    events += about.historyLength;
  }
  return events;
}
