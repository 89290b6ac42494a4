import type { ApiContext } from "./context.ts";

/** Why the process is not ready; empty when it is. */
export type Readiness = () => Promise<string[]>;

const DATABASE_TIMEOUT_MS = 2_000;
/** One answer serves all who ask within this time, so that probes and watchers cost the database little. */
const FRESH_MS = 200;

/** The database's answer and what the rest of the process says. Never rejects. */
export function createReadiness(context: ApiContext): Readiness {
  let latest: { at: number; answer: Promise<string[]> } | undefined;
  return () => {
    if (!latest || performance.now() - latest.at > FRESH_MS) {
      const answer = ask(context);
      const asked = { at: Number.POSITIVE_INFINITY, answer };
      // Fresh from when the answer is there; until then everybody waits for the same one.
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

async function databaseReasons({ db, log }: ApiContext): Promise<string[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("no answer in time")), DATABASE_TIMEOUT_MS);
  });
  try {
    await Promise.race([db.raw("select 1"), late]);
    return [];
  } catch (err) {
    log.debug({ err }, "the database does not answer");
    return ["the database does not answer"];
  } finally {
    clearTimeout(timer);
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
