import { startChild } from "../parts/child.ts";
import { databaseTime, walPosition, walSince } from "../parts/database-work.ts";
import type { Scenario } from "../parts/scenario.ts";
import { clearDeliveries, seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const CONCURRENCY = 64;
const WARM_UP = 15_000;
/** Both services are measured in turn, so that a change of the machine's speed concerns both. */
const ROUNDS = 4;

/** What the index of searchable values costs publishers and PostgreSQL: two values per event. */
export const searchCost: Scenario = {
  name: "search-cost",
  what: "unary publishes with and without SEARCH_INDEX, in turn: rate, and PostgreSQL's work per event",
  count: { full: 40_000, small: 8_000 },
  targets: {},
  comparisons: [],
  async measure(bench, count) {
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    await using indexed = await openStage(bench, { SEARCH_INDEX: "true" });
    await using plain = await openStage(bench, { SEARCH_INDEX: "false" });
    const publish = ({ service, adminKey }: typeof indexed, events: number) =>
      publisher.call("unary", {
        grpcUrl: service.grpcUrl,
        key: adminKey,
        events,
        concurrency: CONCURRENCY,
      });
    const measured = [indexed, plain].map((stage) => ({
      stage,
      seconds: 0,
      walBytes: 0,
      cpuUs: 0,
    }));
    for (const { stage } of measured) {
      await seedWebhooks(stage.db, stage.secrets, ["https://localhost/hooks"]);
      await publish(stage, Math.min(WARM_UP, count));
    }
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const each of measured) {
        bench.stopping.throwIfAborted();
        await clearDeliveries(each.stage.db);
        await each.stage.db.raw("truncate search_terms");
        const position = await walPosition(each.stage.db);
        const before = await databaseTime(each.stage.db);
        each.seconds += await publish(each.stage, count / ROUNDS);
        each.cpuUs += (await databaseTime(each.stage.db)) - before;
        each.walBytes += await walSince(each.stage.db, position);
      }
      bench.show.count("rounds", round + 1, ROUNDS);
    }
    const [withIndex, without] = measured as [(typeof measured)[0], (typeof measured)[0]];
    return [
      { detail: "", unit: "ratio of the rates", value: without.seconds / withIndex.seconds },
      {
        detail: "WAL",
        unit: "more bytes per event",
        value: (withIndex.walBytes - without.walBytes) / count,
      },
      {
        detail: "PostgreSQL",
        unit: "more µs of processor per event",
        value: (withIndex.cpuUs - without.cpuUs) / count,
      },
    ];
  },
};
