import { setTimeout as wait } from "node:timers/promises";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { webhookUrls } from "../parts/fan-out.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HEALTHY_HOSTS = 10;
const FAILING_HOSTS = 100;
const FAILING_EACH = 100;
const FAILING = FAILING_HOSTS * FAILING_EACH;
/** All retries of one kind fall due within seconds, and these are long enough after for the healthy to be queued. */
const RETRY_DELAY_MS = 20_000;
const LOOK_MS = 20;
/** Connections without work are closed by then. */
const IDLE_MS = 6_000;

/**
 * What the retries of very many failing webhooks cost the first attempts to others: the same work of the same healthy
 * hosts, alone and then from the moment that ten thousand retries fall due.
 */
export const failing: Scenario = {
  name: "failing",
  what: "first attempts to 10 hosts while 10,000 webhooks of 100 others are retried: their time",
  count: { full: 50_000, small: 10_000 },
  targets: { "": { atMost: 1.2 } },
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [
      ...Array.from({ length: HEALTHY_HOSTS }, (): Behaviour => ({ status: 200 })),
      ...Array.from({ length: FAILING_HOSTS }, (): Behaviour => ({ status: 500 })),
    ]);
    await using stage = await openStage(bench, {
      RETRY_INITIAL_DELAY: `${RETRY_DELAY_MS}ms`,
      RETRY_BACKOFF_COEFFICIENT: "1",
    });
    /** Webhooks of the healthy hosts that the service has not met. */
    const healthyWebhooks = (name: string) =>
      seedWebhooks(
        stage.db,
        stage.secrets,
        webhookUrls(receivers.urls.slice(0, HEALTHY_HOSTS)).map((url) => `${url}/${name}`),
      );
    await warmUp(stage, receivers, await healthyWebhooks("before"));
    const well = await healthyWebhooks("alone");
    const events = Math.ceil(count / well.length);
    const healthy = {
      requests: events * well.length,
      receivers,
      hosts: HEALTHY_HOSTS,
    };
    await seedPending(stage, { events, webhooks: well });
    // Those beside the retries come after a pause, too, and are connected to anew.
    await wait(IDLE_MS, undefined, { signal: bench.stopping });
    const alone = await dispatch(stage, {
      ...healthy,
      what: "delivering to the healthy alone",
      webhooks: well,
    });
    await untilRunsClosed(stage);

    const urls = receivers.urls
      .slice(HEALTHY_HOSTS)
      .flatMap((host) => Array.from({ length: FAILING_EACH }, (_, n) => `${host}/hooks/${n}`));
    const bad = await seedWebhooks(stage.db, stage.secrets, urls);
    await seedPending(stage, { events: 1, webhooks: bad });
    await stage.trigger();
    await untilFailing(stage, receivers, FAILING);
    // Those that are timed: others than those of before.
    const others = await healthyWebhooks("beside");
    await seedPending(stage, { events, webhooks: others });
    await untilFailing(stage, receivers, FAILING + 1);
    const retried = await requestsOfFailing(receivers);
    const beside = await dispatch(stage, {
      ...healthy,
      what: "delivering to the healthy beside the retries",
      webhooks: others,
    });
    const meanwhile = (await requestsOfFailing(receivers)) - retried;
    return [
      { detail: "", unit: "ratio", value: beside / alone },
      { detail: "healthy alone", unit: "s", value: alone },
      { detail: "healthy beside retries", unit: "s", value: beside },
      { detail: "retries meanwhile", unit: "requests", value: meanwhile },
    ];
  },
};

async function requestsOfFailing(receivers: Receivers): Promise<number> {
  return (await receivers.count()) - (await receivers.count(HEALTHY_HOSTS));
}

/** Resolves when the failing have had so many requests. */
async function untilFailing(stage: Stage, receivers: Receivers, requests: number): Promise<void> {
  for (;;) {
    const count = await requestsOfFailing(receivers);
    stage.bench.show.count("attempts that fail", count, requests);
    if (count >= requests) return;
    await wait(LOOK_MS, undefined, { signal: stage.bench.stopping });
  }
}
