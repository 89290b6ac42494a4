import { BREAKER_JOB } from "../breakers/index.ts";
import { ERASURE_JOB } from "../events/index.ts";
import { HEALTH_JOB } from "../health/index.ts";
import { CERTIFICATES_JOB, COUNT_RECOVERED_JOB, type SeenCertificates } from "../incidents/index.ts";
import { isTransient } from "../lib/pg/index.ts";
import { type Job, startJobs } from "../lib/process/index.ts";
import { customerErasureJob, FOLD_JOB, FORGOTTEN_JOB } from "../maintenance/index.ts";
import { type JobParts, QUEUE_JOBS } from "../queue/index.ts";
import { OUTCOMES_JOB } from "../replays/index.ts";
import { revokeKey } from "./revoke-key.ts";

type Parts = JobParts & Parameters<typeof BREAKER_JOB.run>[0] & { certificates?: SeenCertificates };

/** The jobs of each module, in their order. */
const JOBS: readonly Job<Parts>[] = [
  ...QUEUE_JOBS,
  FOLD_JOB,
  BREAKER_JOB,
  HEALTH_JOB,
  customerErasureJob(revokeKey),
  FORGOTTEN_JOB,
  COUNT_RECOVERED_JOB,
  CERTIFICATES_JOB,
  OUTCOMES_JOB,
  // Last: a response that cannot be erased must not hold up the rest.
  ERASURE_JOB,
];

/**
 * Starts the jobs that a delivering process does every second. Safe to run in any number of processes at once.
 *
 * @param parts.works told what the thread works on. Defaults to nothing
 * @returns stops the jobs
 */
export function startMaintenance(parts: Parts & { works?: (on: string) => void }): () => Promise<void> {
  return startJobs(JOBS, parts, {
    works: parts.works,
    onError(err) {
      // While the database is unavailable, other parts log it.
      if (!isTransient(err)) parts.log.error({ err }, "maintenance failed; retrying");
    },
  });
}
