import { dispatch, warmUp } from "../parts/dispatching.ts";
import { watchMemory } from "../parts/memory.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** A long queue: ten times that of `drain`, to be sent at the same rate and without memory growth. */
export const backlog: Scenario = {
  name: "backlog",
  what: "as drain, ten times as many; and a worker's resident memory meanwhile",
  count: { full: 1_000_000, small: 100_000 },
  targets: { "of drain": { atLeast: 0.9 }, memory: { atMost: 450 } },
  comparisons: [{ detail: "of drain", unit: "ratio", with: "drain", value: (own, drain) => own / drain }],
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    // The memory is that of a worker alone, with all its processes.
    await using stage = await openStage(bench, { ROLE: "api" });
    const webhooks = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[0]}/hooks`]);
    await warmUp(stage, receivers, webhooks);
    await seedPending(stage, { events: count, webhooks });
    using memory = watchMemory(stage.deliveryPid);
    const seconds = await dispatch(stage, { what: "delivering", requests: count, receivers });
    const { max, growth } = memory.stop();
    return [
      { detail: "", unit: "deliveries/s", value: count / seconds },
      { detail: "memory", unit: "MiB at most", value: max },
      { detail: "memory growth", unit: "MiB", value: growth },
    ];
  },
};
