import type { DispatchConfig } from "../config/index.ts";
import type { Job } from "../lib/process/index.ts";
import type { JobParts } from "../queue/index.ts";
import { inLog } from "../webhooks/index.ts";
import { decideBreakers, MAX_DECIDED } from "./decide.ts";

interface Parts extends Pick<JobParts, "db" | "log" | "instruments" | "delivery"> {
  /** Breakers send no deliveries again that are older than its retention. */
  dispatch: Pick<DispatchConfig, "retentionDays">;
}

/** Decides on circuit breakers; logs and counts their changes. */
export const BREAKER_JOB: Job<Parts> = {
  name: "decide on circuit breakers",
  most: MAX_DECIDED,
  async run({ db, log, instruments, delivery, dispatch }) {
    const { changes, decided } = await decideBreakers(
      db,
      dispatch.retentionDays,
      delivery.maxPendingPerWebhook,
    );
    for (const change of changes) {
      const { state, reason } = change;
      instruments.breakerChanges.add(1, { state });
      if (state === "closed") log.info(inLog(change), "circuit breaker closed");
      else if (state === "open") log.info({ ...inLog(change), reason }, "circuit breaker opened");
      else log.warn({ ...inLog(change), reason }, "webhook disabled by its circuit breaker");
    }
    return decided;
  },
};
