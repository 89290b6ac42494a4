import { Context } from "@temporalio/activity";
import { untilAnswered } from "../db/faults.ts";
import { deleteExpired } from "../db/retention.ts";
import { forgetExpiredSecrets } from "../db/webhook-secrets.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";

const DAY_MS = 86_400_000;

/**
 * The activity that deletes what is older than the retention, step by step until nothing is left, and secrets that
 * have expired; another try goes on where this one ended.
 */
export function createDeleteExpired({ db, stopping }: DeliveryEngine, retentionDays: number) {
  return async (): Promise<{ summary: string }> => {
    const before = new Date(Date.now() - retentionDays * DAY_MS);
    const forget = () => forgetExpiredSecrets(db);
    await untilAnswered(forget, { signal: Context.current().cancellationSignal });
    const total = { deliveries: 0, events: 0, runs: 0 };
    for (;;) {
      const { cancellationSignal } = Context.current();
      const step = await untilAnswered(() => deleteExpired(db, before), { signal: cancellationSignal });
      total.deliveries += step.deliveries;
      total.events += step.events;
      total.runs += step.runs;
      Context.current().heartbeat(total);
      const nothing = step.deliveries + step.events + step.runs === 0;
      if (nothing || stopping.aborted || cancellationSignal.aborted) break;
    }
    return { summary: `${total.deliveries} deliveries, ${total.events} events, ${total.runs} runs deleted` };
  };
}
