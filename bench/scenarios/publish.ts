import { startChild } from "../parts/child.ts";
import type { Member } from "../parts/payload.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { clearDeliveries, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const CONCURRENCY = 64;
const STREAMS = { streams: 4, eventsPerMessage: 100 };
/** Streamed events as a multiple of unary calls, so that the measurement takes long enough. */
const STREAMED_TIMES = 5;
/**
 * The number of warm-up calls. With fewer, code is still being compiled: the calls after the first 3,000 are a sixth
 * slower than later ones.
 */
const WARM_UP = 15_000;

/** The rate of publishing over gRPC without deliveries. */
export const publish: Scenario = {
  name: "publish",
  what: "events published over gRPC by 64 calls at once, with 1 and 10 webhooks, packed, as JSON, and streamed",
  count: { full: 30_000, small: 5_000 },
  targets: {
    "": { atLeast: 3_000 },
    streamed: { atLeast: 10_000 },
    "packed, of the rate of the event type's own member": { atLeast: 0.95 },
  },
  comparisons: [],
  async measure(bench, count) {
    await using stage = await openStage(bench);
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    const target = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey };
    // Nothing is sent: the schedule is paused.
    const register = (from: number, to: number) =>
      seedWebhooks(
        stage.db,
        stage.secrets,
        Array.from({ length: to - from }, (_, n) => `https://localhost/${from + n}`),
      );
    async function measured(
      detail: string,
      events: number,
      run: (events: number) => Promise<number>,
    ): Promise<Measurement> {
      await run(Math.min(WARM_UP, events));
      await clearDeliveries(stage.db);
      const seconds = await run(events);
      await clearDeliveries(stage.db);
      return { detail, unit: "events/s", value: events / seconds, count: events };
    }

    const by = (member: Member) => (events: number) =>
      publisher.call("unary", { ...target, events, concurrency: CONCURRENCY, member });
    const unary = by("orderDispatched");
    const streamed = (events: number) => publisher.call("streamed", { ...target, ...STREAMS, events });
    await register(0, 1);
    const one = await measured("", count, unary);
    const packed = await measured("packed", count, by("event"));
    // Before and after, because later measurements of a run are faster.
    const again = await measured("", count, unary);
    const json = await measured("as JSON", count, by("jsonEvent"));
    const stream = await measured("streamed", STREAMED_TIMES * count, streamed);
    await register(1, 10);
    const ten = await measured("10 webhooks", count, unary);
    const ratio = (2 * packed.value) / (one.value + again.value);
    const ofOwn = {
      detail: "packed, of the rate of the event type's own member",
      unit: "ratio",
      value: ratio,
    };
    return [one, ten, packed, ofOwn, json, stream];
  },
};
