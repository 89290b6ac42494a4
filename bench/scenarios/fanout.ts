import { dispatch, warmUp } from "../parts/dispatching.ts";
import { eventsFor, HOSTS, webhookUrls } from "../parts/fan-out.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** Events with a thousand webhooks each: as many deliveries as `drain`, over a hundred hosts. */
export const fanout: Scenario = {
  name: "fanout",
  what: "deliveries of events that each go to 1,000 webhooks on 100 hosts",
  count: { full: 100_000, small: 20_000 },
  targets: { "of drain": { atLeast: 0.8 } },
  comparisons: ["drain", "limit-spread"].map((other) => ({
    detail: `of ${other}`,
    unit: "ratio",
    with: other,
    value: (own, theirs) => own / theirs,
  })),
  async measure(bench, count) {
    const behaviours = Array.from({ length: HOSTS }, () => ({ status: 200 }));
    await using receivers = await startReceivers(bench, behaviours);
    await using stage = await openStage(bench);
    const webhooks = await seedWebhooks(stage.db, stage.secrets, webhookUrls(receivers.urls));
    await warmUp(stage, receivers, webhooks);
    const events = eventsFor(count);
    await seedPending(stage, { events, webhooks });
    const requests = events * webhooks.length;
    const before = await receivers.connections();
    const seconds = await dispatch(stage, { what: "delivering", requests, receivers });
    const opened = (await receivers.connections()) - before;
    return [
      { detail: "", unit: "deliveries/s", value: requests / seconds },
      { detail: "connections", unit: "opened", value: opened },
    ];
  },
};
