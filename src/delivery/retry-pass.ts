import { untilAnswered } from "../db/faults.ts";
import { claimGroup } from "../db/queue/claims.ts";
import type { GroupStatus } from "../db/queue/retry-groups.ts";
import type { DeliveryEngine } from "./engine.ts";
import { DeliveryFlow } from "./flow.ts";
import type { FlowCounts } from "./flow-parts.ts";
import { releaseClaims } from "./pump.ts";

/** What one pass over a retry group did. */
export interface PassResult extends FlowCounts {
  /** Where the group stands after it. */
  status: GroupStatus;
  /** The last failure, for people: `503 from shop.example`. */
  lastFailure: string | null;
  /** False when the pass was stopped before every due delivery was tried. */
  complete: boolean;
}

/**
 * Tries every open delivery of the group once: those with the fewest attempts in their round. After a pass that was
 * cut short the stragglers are the fewest, so that none is tried twice and none is left behind.
 *
 * @param report is given the counts, which go on changing
 */
export async function retryPass(
  engine: DeliveryEngine,
  runId: number,
  group: number,
  stop: AbortSignal,
  report: (counts: Readonly<FlowCounts>) => void = () => {},
): Promise<PassResult> {
  const { statements } = engine;
  const { level } = await untilAnswered(() => statements.groupStatus(runId, group));
  const flow: DeliveryFlow = new DeliveryFlow(
    engine,
    {
      async claim(limit, excluded) {
        await turn.next();
        const most = Math.min(limit, engine.retries.giveWay ? SMALL_CHUNK : CHUNK);
        const claimed = await engine.lease.claim(
          (workerId) =>
            engine.limitRetryClaims(() =>
              claimGroup(engine.db, { workerId, runId }, { group, level, limit: most, excluded }),
            ),
          stop,
        );
        const exhausted = claimed.touched < most && excluded.length === 0 && !claimed.limited;
        if (exhausted) turn.end();
        return { ...claimed, exhausted };
      },
      release: (deliveries) => releaseClaims(engine, deliveries),
    },
    engine.retries,
  );
  const turn = engine.retryTurns.of(flow, stop);
  report(flow.counts);
  const { exhausted } = await flow.run(stop).finally(() => turn.end());
  const status = await untilAnswered(() => statements.groupStatus(runId, group));
  const last = flow.lastFailure;
  return {
    ...flow.counts,
    status,
    lastFailure: last ? `${last.what} from ${last.host}` : null,
    complete: exhausted,
  };
}

/** Claimed at once; small, since what a dead worker had claimed waits for its successor. */
const CHUNK = 64;
/** And while first attempts go at full speed: then it is another group's turn. */
const SMALL_CHUNK = 16;
