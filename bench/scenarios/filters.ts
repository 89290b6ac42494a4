import { count, rows } from "../../src/lib/pg/database.ts";
import { databaseTime } from "../parts/database-work.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { processorTime } from "../parts/processes.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { clearDeliveries, insertPending, seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";

/** The deliveries of each case before the measurement. */
const WARM_UP = 2_000;
/** The part of the deliveries that another webhook gets beside, whose filter matches none. */
const BESIDE = 0.01;

/** What is drained. Events have the order ids 1 and on. */
interface Case {
  name: string;
  /** The filter of the webhook; null for none. */
  filter: string | null;
  /** The part of the events that it matches. */
  part: number;
  /** Whether another webhook with a filter gets deliveries at the same time. */
  beside: boolean;
}

const DRAIN: Case = { name: "drain", filter: null, part: 1, beside: false };
const CASES: readonly Case[] = [
  DRAIN,
  { name: "", filter: null, part: 1, beside: true },
  { name: "all match", filter: "event.order_id > 0", part: 1, beside: false },
  { name: "one in ten", filter: "event.order_id % 10 == 0", part: 0.1, beside: false },
];

/** All cases are measured in turn, so that a change of the machine's speed concerns each of them. */
const ROUNDS = CASES.length;

/** What the deliveries of a webhook took. */
interface Drained {
  seconds: number;
  serviceUs: number;
  databaseUs: number;
}

/** The cost of filters, and whether webhooks without one pay for those of others. */
export const filters: Scenario = {
  name: "filters",
  what: "drain with a webhook without a filter (beside another with one), with one that matches all events, and one in ten, in turn",
  count: { full: 100_000, small: 40_000 },
  targets: { "": { atLeast: 0.97 } },
  comparisons: [],
  async measure(bench, deliveries) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using stage = await openStage(bench);
    const webhooks = await seedWebhooks(stage.db, stage.secrets, [
      `${receivers.urls[0]}/hooks`,
      `${receivers.urls[0]}/beside`,
    ]);
    await warmUp(stage, receivers, webhooks);
    for (const each of CASES) await drainOnce(stage, receivers, webhooks, each, WARM_UP);
    const sums = new Map<Case, Drained>();
    for (let round = 0; round < ROUNDS; round += 1) {
      // Each case is the first of a round once.
      for (const each of [...CASES.slice(round), ...CASES.slice(0, round)]) {
        const took = await drainOnce(stage, receivers, webhooks, each, deliveries / ROUNDS);
        const sum = sums.get(each) ?? { seconds: 0, serviceUs: 0, databaseUs: 0 };
        sums.set(each, {
          seconds: sum.seconds + took.seconds,
          serviceUs: sum.serviceUs + took.serviceUs,
          databaseUs: sum.databaseUs + took.databaseUs,
        });
      }
      bench.show.count("rounds", round + 1, ROUNDS);
    }
    return figuresOf(sums, deliveries);
  },
};

function figuresOf(sums: ReadonlyMap<Case, Drained>, deliveries: number): Measurement[] {
  const drained = (each: Case) => sums.get(each) as Drained;
  const drain = drained(DRAIN);
  const ratios = CASES.filter((each) => each !== DRAIN).flatMap((each): Measurement[] => {
    const own = drained(each);
    const detail = (what: string) => [each.name, what].filter((part) => part !== "").join(" ");
    return [
      { detail: each.name, unit: "of the rate of drain", value: drain.seconds / own.seconds },
      { detail: detail("processor"), unit: "times the service", value: own.serviceUs / drain.serviceUs },
      { detail: detail("database"), unit: "times PostgreSQL", value: own.databaseUs / drain.databaseUs },
    ];
  });
  return [
    ...ratios,
    { detail: "drain", unit: "deliveries/s", value: deliveries / drain.seconds },
    { detail: "drain processor", unit: "us of the service", value: drain.serviceUs / deliveries },
    { detail: "drain database", unit: "us of PostgreSQL", value: drain.databaseUs / deliveries },
  ];
}

/** Drains a queue of the first webhook, whether its deliveries are sent or not. */
async function drainOnce(
  stage: Stage,
  receivers: Receivers,
  webhooks: readonly bigint[],
  { name, filter, part, beside }: Case,
  deliveries: number,
): Promise<Drained> {
  const [own, other] = webhooks as [bigint, bigint];
  await count(
    stage.db,
    "update webhooks set filter = case when id = :own::bigint then :filter::text when :beside::bool then 'false' end",
    { own, filter, beside },
  );
  const events = Math.floor(deliveries);
  if (beside) await insertPending(stage, { events: Math.ceil(events * BESIDE), webhooks: [other] });
  await seedPending(stage, { events, webhooks: [own] });
  const before = { serviceUs: processorTime(stage.deliveryPid), databaseUs: await databaseTime(stage.db) };
  const requests = Math.floor(events * part);
  const seconds = await dispatch(stage, { what: `delivering (${name || "beside"})`, requests, receivers });
  const serviceUs = processorTime(stage.deliveryPid) - before.serviceUs;
  const databaseUs = (await databaseTime(stage.db)) - before.databaseUs;
  await expectFiltered(stage, own, events - requests);
  await untilRunsClosed(stage);
  await clearDeliveries(stage.db);
  return { seconds, serviceUs, databaseUs };
}

/** @throws Error if other deliveries than expected were filtered */
async function expectFiltered({ db }: Stage, webhookId: bigint, expected: number): Promise<void> {
  const [found] = await rows<{ n: number }>(
    db,
    "select count(*)::int as n from deliveries where webhook_id = :webhookId::bigint and outcome = 'filtered'",
    { webhookId },
  );
  if (found?.n !== expected) throw new Error(`${found?.n} deliveries were filtered, not ${expected}`);
}
