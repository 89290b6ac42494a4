import { readDatabaseWork } from "../parts/database-work.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { processorTime } from "../parts/processes.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";

/** A queue for one receiver, sent, signed and recorded by one service process. */
export const drain: Scenario = {
  name: "drain",
  what: "pending deliveries to one host, from the schedule's trigger to the last one recorded",
  count: { full: 100_000, small: 20_000 },
  targets: { "of limit": { atLeast: 0.45 } },
  comparisons: ["limit", "limit-alike"].map((loop) => ({
    detail: `of ${loop}`,
    unit: "ratio",
    with: loop,
    value: (own, bare) => own / bare,
  })),
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using stage = await openStage(bench);
    const webhooks = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[0]}/hooks`]);
    await warmUp(stage, receivers, webhooks);
    await seedPending(stage, { events: count, webhooks });
    const before = { own: processorTime(stage.deliveryPid), database: await readDatabaseWork(stage.db) };
    const seconds = await dispatch(stage, { what: "delivering", requests: count, receivers });
    const own = processorTime(stage.deliveryPid) - before.own;
    const database = (await readDatabaseWork(stage.db)).cpuUs - before.database.cpuUs;
    return [
      { detail: "", unit: "deliveries/s", value: count / seconds },
      { detail: "processor", unit: "us of the service", value: own / count },
      { detail: "database", unit: "us of PostgreSQL", value: database / count },
    ];
  },
};
