import { isReadOnlyFault, LivenessProbe, takesWrites } from "../../lib/pg/index.ts";
import type { ApiContext } from "./context.ts";

/** The reasons why the process is not ready; empty if ready. */
export type Readiness = () => Promise<string[]>;

/**
 * The time after which a check of the database uses a separate connection, in milliseconds: a pool whose connections are all in use
 * delays `/readyz` by no more.
 */
const POOL_TIMEOUT_MS = 100;
/** The timeouts for opening that connection and for its statement, in milliseconds each. */
const PROBE_TIMEOUT_MS = 750;
/** The cache time of a result, in milliseconds, so that probes and watchers cost the database little. */
const CACHE_TIME_MS = 200;

/** Combines a check of the database with the readiness of the rest of the process. Never rejects. */
export function createReadiness(context: ApiContext): Readiness {
  let latest: { at: number; answer: Promise<string[]> } | undefined;
  return () => {
    if (!latest || performance.now() - latest.at > CACHE_TIME_MS) {
      const answer = ask(context);
      const asked = { at: Number.POSITIVE_INFINITY, answer };
      // The cache time starts with the result. Until then all callers wait for the same check.
      void answer.then(() => {
        asked.at = performance.now();
      });
      latest = asked;
    }
    return latest.answer;
  };
}

async function ask(context: ApiContext): Promise<string[]> {
  const reasons = await Promise.all([databaseReasons(context), otherReasons(context)]);
  return reasons.flat();
}

/** The reasons by what the check finds, besides a database that takes writes. */
const REASONS = {
  reads: "the database takes no writes",
  refuses: "the database does not respond",
  silent: "the database does not respond",
};

/** A pool whose connections are all in use is no reason: a load balancer must not remove every process that has much to do. */
async function databaseReasons({ db, log }: ApiContext): Promise<string[]> {
  const probe = new LivenessProbe(db);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<"late">((resolve) => {
    timer = setTimeout(resolve, POOL_TIMEOUT_MS, "late");
  });
  try {
    const first = await Promise.race([takesWrites(db), late]);
    const found = first === "late" ? await probe.ask(PROBE_TIMEOUT_MS) : first ? "writes" : "reads";
    return found === "writes" ? [] : [REASONS[found]];
  } catch (err) {
    log.debug({ err }, "the check of the database failed");
    return [REASONS[isReadOnlyFault(err) ? "reads" : "refuses"]];
  } finally {
    clearTimeout(timer);
    probe.close();
  }
}

async function otherReasons({ readiness, log }: ApiContext): Promise<string[]> {
  try {
    return await readiness();
  } catch (err) {
    log.warn({ err }, "a readiness check failed");
    return ["a readiness check failed; see the log"];
  }
}
