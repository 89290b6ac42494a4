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
/** All retries of a round fall due within seconds, and this delay is long enough to queue the healthy ones before. */
const RETRY_DELAY_MS = 10_000;
const POLL_MS = 20;
/** The time after which idle connections are closed, in milliseconds. */
const IDLE_MS = 6_000;

/**
 * The effect of retries for very many failing webhooks on first attempts to others: the same work of the same healthy
 * hosts, alone and from the moment at which ten thousand retries fall due.
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
    const [good, bad] = [receivers.urls.slice(0, HEALTHY_HOSTS), receivers.urls.slice(HEALTHY_HOSTS)];
    /** The duration of queued first attempts of webhooks unknown to the service, in seconds. */
    const deliver = (what: string, queued: Queued) =>
      dispatch(stage, { what, ...queued, receivers, hosts: HEALTHY_HOSTS });
    const queue = async (name: string, requests: number): Promise<Queued> => {
      const webhooks = await seedWebhooks(
        stage.db,
        stage.secrets,
        webhookUrls(good).map((url) => `${url}/${name}`),
      );
      const events = Math.ceil(requests / webhooks.length);
      // Counted before queueing: the pump of a run that is about to end may send some at once.
      const before = await receivers.count(HEALTHY_HOSTS);
      await seedPending(stage, { events, webhooks });
      return { requests: events * webhooks.length, webhooks, before };
    };
    /** The same from the moment at which the retries of the given number of webhooks per failing host fall due. */
    const deliverBeside = async (name: string, requests: number, failingEach: number) => {
      const urls = bad.flatMap((host) =>
        Array.from({ length: failingEach }, (_, n) => `${host}/${name}/${n}`),
      );
      const webhooks = await seedWebhooks(stage.db, stage.secrets, urls);
      await seedPending(stage, { events: 1, webhooks });
      const before = await requestsOfFailing(receivers);
      await stage.trigger();
      await untilFailing(stage, receivers, before + urls.length);
      const queued = await queue(name, requests);
      await untilFailing(stage, receivers, before + urls.length + 1);
      const retried = await requestsOfFailing(receivers);
      const seconds = await deliver("delivering to the healthy beside retries", queued);
      return { seconds, retried: (await requestsOfFailing(receivers)) - retried };
    };

    // Warms up the service with failures and retries too, so that code is compiled.
    await warmUp(stage, receivers, await seedWebhooks(stage.db, stage.secrets, webhookUrls(good)));
    await deliverBeside("before", count / 2, FAILING_EACH / 10);
    await untilRunsClosed(stage);

    const queued = await queue("alone", count);
    // The measurement beside retries follows a pause with new connections too.
    await wait(IDLE_MS, undefined, { signal: bench.stopping });
    const alone = await deliver("delivering to the healthy alone", queued);
    await untilRunsClosed(stage);

    const beside = await deliverBeside("beside", count, FAILING_EACH);
    return [
      { detail: "", unit: "ratio", value: beside.seconds / alone },
      { detail: "healthy alone", unit: "s", value: alone },
      { detail: "healthy beside retries", unit: "s", value: beside.seconds },
      { detail: "retries meanwhile", unit: "requests", value: beside.retried },
    ];
  },
};

/** Deliveries queued for a dispatch. */
interface Queued {
  requests: number;
  webhooks: bigint[];
  /** The number of requests at the healthy receivers before these deliveries were queued. */
  before: number;
}

async function requestsOfFailing(receivers: Receivers): Promise<number> {
  return (await receivers.count()) - (await receivers.count(HEALTHY_HOSTS));
}

/** Resolves when the failing receivers have had the given number of requests. */
async function untilFailing(stage: Stage, receivers: Receivers, requests: number): Promise<void> {
  for (;;) {
    const count = await requestsOfFailing(receivers);
    stage.bench.show.count("attempts that fail", count, requests);
    if (count >= requests) return;
    await wait(POLL_MS, undefined, { signal: stage.bench.stopping });
  }
}
