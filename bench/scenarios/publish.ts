import { startChild } from "../parts/child.ts";
import { type Member, REGISTERED, REGISTERED_SETTINGS } from "../parts/payload.ts";
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

/** The number of passes over the members, each with a third of the events. */
const PASSES = 6;
/** The members of unary calls, in the order of their measurement, with the names of their figures. */
const MEMBERS: readonly (readonly [Member, string])[] = [
  ["orderDispatched", ""],
  ["event", "packed"],
  ["registeredEvent", "registered event type, packed"],
  ["jsonEvent", "as JSON"],
  ["registeredJsonEvent", "registered event type, as JSON"],
];

/** The rate of publishing over gRPC without deliveries. */
export const publish: Scenario = {
  name: "publish",
  what: "events published over gRPC by 64 calls at once, with 1 and 10 webhooks, packed, as JSON, of a registered event type, and streamed",
  count: { full: 30_000, small: 5_000 },
  targets: {
    "": { atLeast: 3_000 },
    streamed: { atLeast: 10_000 },
    "packed, of the rate of the event type's own member": { atLeast: 0.95 },
    "registered event type, packed, of the built-in one": { atLeast: 0.95 },
  },
  comparisons: [],
  async measure(bench, count) {
    const perPass = Math.ceil(count / 3);
    await using stage = await openStage(bench, REGISTERED_SETTINGS);
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    const target = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey };
    // Nothing is sent: the schedule is paused.
    const register = (from: number, to: number, process?: number) =>
      seedWebhooks(
        stage.db,
        stage.secrets,
        Array.from({ length: to - from }, (_, n) => `https://localhost/${from + n}`),
        process,
      );
    const warmUp = (run: (events: number) => Promise<number>, events: number) =>
      run(Math.min(WARM_UP, events));
    async function secondsOf(run: (events: number) => Promise<number>, events: number): Promise<number> {
      await clearDeliveries(stage.db);
      const seconds = await run(events);
      await clearDeliveries(stage.db);
      return seconds;
    }
    const rate = (detail: string, events: number, seconds: number): Measurement => ({
      detail,
      unit: "events/s",
      value: events / seconds,
      count: events,
    });

    const by = (member: Member) => (events: number) =>
      publisher.call("unary", { ...target, events, concurrency: CONCURRENCY, member });
    const streamed = (events: number) => publisher.call("streamed", { ...target, ...STREAMS, events });
    await register(0, 1);
    await register(0, 1, REGISTERED.process);
    const seconds = new Map<string, number>();
    for (const [member] of MEMBERS) await warmUp(by(member), count);
    for (let pass = 0; pass < PASSES; pass += 1)
      // Forwards and backwards in turn, because later measurements of a run are faster.
      for (const [member, detail] of pass % 2 === 0 ? MEMBERS : MEMBERS.toReversed())
        seconds.set(detail, (seconds.get(detail) ?? 0) + (await secondsOf(by(member), perPass)));
    const unary = Array.from(seconds, ([detail, all]) => rate(detail, PASSES * perPass, all));
    const ratio = (detail: string, over: string, under: string): Measurement => ({
      detail,
      unit: "ratio",
      value: (seconds.get(under) as number) / (seconds.get(over) as number),
    });
    await warmUp(streamed, STREAMED_TIMES * count);
    const stream = rate(
      "streamed",
      STREAMED_TIMES * count,
      await secondsOf(streamed, STREAMED_TIMES * count),
    );
    await register(1, 10);
    await warmUp(by("orderDispatched"), count);
    const ten = rate("10 webhooks", count, await secondsOf(by("orderDispatched"), count));
    return [
      ...unary,
      ratio("packed, of the rate of the event type's own member", "packed", ""),
      ratio("registered event type, packed, of the built-in one", "registered event type, packed", ""),
      ratio(
        "registered event type, as JSON, of the built-in one",
        "registered event type, as JSON",
        "as JSON",
      ),
      stream,
      ten,
    ];
  },
};
