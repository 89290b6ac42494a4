import { rows } from "../../src/lib/pg/database.ts";
import { startChild } from "../parts/child.ts";
import { databaseTime } from "../parts/database-work.ts";
import { dispatch, warmUp } from "../parts/dispatching.ts";
import { processorTime } from "../parts/processes.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { clearDeliveries, seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { BusyLoopMethods } from "../processes/busy-loop.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const CONCURRENCY = 64;
const WARM_UP = 15_000;
/** The number of deliveries sent alone, to measure their cost for PostgreSQL. */
const ALONE = 20_000;
/** The number of pending deliveries per published event, enough to outlast the publishing. */
const PENDING_EACH = 8;
/** The number of deliveries after which the drain counts as running. */
const STARTED = 2_000;

/** Whether deliveries slow down publishing by more than their processor time. */
export const publishBeside: Scenario = {
  name: "publish-beside",
  what: "unary publishes beside a full-speed drain, and beside busy loops that use as much processor time",
  count: { full: 20_000, small: 4_000 },
  targets: { "of busy loops": { atLeast: 0.8 } },
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using stage = await openStage(bench);
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    const [drained, paused] = (await seedWebhooks(stage.db, stage.secrets, [
      `${receivers.urls[0]}/hooks`,
      "https://localhost/paused",
    ])) as [bigint, bigint];
    // Published events go to a paused webhook, so that they cost only the publisher.
    await rows(stage.db, "update webhooks set paused = now() where id = :paused", { paused });
    await rows(stage.db, "update webhooks set process = 2 where id = :drained", { drained });
    await rows(stage.db, "update processes set live = 1");
    await warmUp(stage, receivers, [drained]);
    await seedPending(stage, { events: ALONE, webhooks: [drained] });
    const databaseBefore = await databaseTime(stage.db);
    await dispatch(stage, { what: "delivering alone", requests: ALONE, receivers });
    const databaseUs = ((await databaseTime(stage.db)) - databaseBefore) / ALONE;

    const target = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey };
    const publish = async (events: number) =>
      events / (await publisher.call("unary", { ...target, events, concurrency: CONCURRENCY }));
    const usedUs = () => processorTime(stage.deliveryPid) + processorTime(receivers.pid);

    await publish(Math.min(WARM_UP, count));
    await clearDeliveries(stage.db);
    const alone = await publish(count);
    await clearDeliveries(stage.db);

    await seedPending(stage, { events: PENDING_EACH * count, webhooks: [drained] });
    const pendingFrom = await receivers.count();
    await stage.trigger();
    while ((await receivers.count()) < pendingFrom + Math.min(STARTED, count))
      bench.stopping.throwIfAborted();
    const before = { at: performance.now(), count: await receivers.count(), used: usedUs() };
    const beside = await publish(count);
    const received = await receivers.count();
    const seconds = (performance.now() - before.at) / 1_000;
    if (received - pendingFrom > 0.95 * PENDING_EACH * count)
      throw new Error("the drain ended before the publishing did");
    const deliveries = received - before.count;
    // Otherwise the busy loops would do nothing, too.
    if (deliveries < count / 4) throw new Error(`the drain made only ${deliveries} deliveries meanwhile`);
    const cores = (usedUs() - before.used + deliveries * databaseUs) / 1_000_000 / seconds;
    await clearDeliveries(stage.db);

    await using busy = new AsyncDisposableStack();
    const loops = Array.from({ length: Math.ceil(cores) }, () =>
      busy.use(startChild<BusyLoopMethods>(bench, "busy-loop.ts")),
    );
    await Promise.all(loops.map((loop) => loop.call("use", { part: cores / loops.length })));
    const besideLoops = await publish(count);
    return [
      { detail: "", unit: "events/s", value: beside },
      { detail: "of busy loops", unit: "ratio", value: beside / besideLoops },
      { detail: "alone", unit: "events/s", value: alone },
      { detail: "beside busy loops", unit: "events/s", value: besideLoops },
      { detail: "drain", unit: "deliveries/s", value: deliveries / seconds },
      { detail: "drain's processor time", unit: "cores", value: cores },
    ];
  },
};
