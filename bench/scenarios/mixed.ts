import type { Bench } from "../parts/bench.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { eventsFor, webhookUrls } from "../parts/fan-out.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HEALTHY = 70;
const times = <T>(length: number, item: T): T[] => Array.from({ length }, () => item);
const BAD: Behaviour[] = [
  ...times<Behaviour>(10, "never"),
  ...times<Behaviour>(10, { status: 500 }),
  ...times<Behaviour>(10, { status: 200, delayMs: 5_000 }),
];

/** The effect of bad receivers on others: the same healthy hosts with the same work, alone and beside bad ones. */
export const mixed: Scenario = {
  name: "mixed",
  what: "as fanout, but 10 hosts never answer, 10 answer 500, 10 answer after 5 s: the other 70's time",
  count: { full: 100_000, small: 20_000 },
  targets: { "": { atMost: 1.1 } },
  comparisons: [],
  async measure(bench, count) {
    const alone = await timeOfHealthy(bench, eventsFor(count), []);
    const beside = await timeOfHealthy(bench, eventsFor(count), BAD);
    return [
      { detail: "", unit: "ratio", value: beside / alone },
      { detail: "healthy alone", unit: "s", value: alone },
      { detail: "healthy beside bad", unit: "s", value: beside },
    ];
  },
};

/** Seconds from the trigger until all deliveries to the healthy hosts are recorded. */
async function timeOfHealthy(bench: Bench, events: number, bad: Behaviour[]): Promise<number> {
  await using receivers = await startReceivers(bench, [
    ...times<Behaviour>(HEALTHY, { status: 200 }),
    ...bad,
  ]);
  await using stage = await openStage(bench);
  const healthy = await seedWebhooks(stage.db, stage.secrets, webhookUrls(receivers.urls.slice(0, HEALTHY)));
  await warmUp(stage, receivers, healthy);
  const others = await seedWebhooks(stage.db, stage.secrets, webhookUrls(receivers.urls.slice(HEALTHY)));
  await seedPending(stage, { events, webhooks: [...healthy, ...others] });
  return await dispatch(stage, {
    what: bad.length === 0 ? "delivering to the healthy alone" : "delivering to the healthy beside the bad",
    requests: events * healthy.length,
    receivers,
    hosts: HEALTHY,
    webhooks: healthy,
  });
}
