import { parentPort, workerData } from "node:worker_threads";
import { eventType, eventTypes, isRegistered, setRegisteredTypes } from "../contract/catalogue.ts";
import { buildEntries } from "../event-types/entries.ts";
import { systemClock as clock } from "../lib/process/clock.ts";
import { Evaluator } from "./evaluator.ts";
import {
  JOBS,
  NONE,
  NOT_SENT,
  PHASES,
  SENT,
  type ThreadData,
  type ThreadJob,
  type ThreadResult,
} from "./thread-messages.ts";

/** The number of evaluations at the start: the first ones of a thread take ten times as long as later ones. */
const WARM_UP = 50;

/** Evaluates the filters that the thread is sent. */
function main({ progress, outcomes, catalogue }: ThreadData): void {
  setRegisteredTypes(buildEntries(catalogue.files, catalogue.types));
  const built = new Set<number>();
  /** Builds the event type of a filter. Not limited, as the start of the thread is not. */
  function build(process: number): void {
    built.add(process);
    const phases = Atomics.exchange(progress, PHASES, 0);
    void eventType(process)?.payload;
    Atomics.store(progress, PHASES, phases + 1);
  }
  const evaluator = new Evaluator();
  const [first] = eventTypes();
  for (let n = 1; n <= WARM_UP; n += 1) {
    const expression = `user_id.matches("^[a-z]{1,${n}}$") && [1, 2].map(n, n + 1).exists(n, n > ${n})`;
    evaluator.evaluate({ process: first?.number ?? 0, expression }, { payload: "{}", userId: "tenant" });
  }
  parentPort?.on("message", (jobs: ThreadJob[]) => {
    const results = jobs.map(({ filter, event }): ThreadResult => {
      if (isRegistered(filter.process) && !built.has(filter.process)) build(filter.process);
      const began = clock.worked();
      const number = Atomics.add(progress, JOBS, 1);
      Atomics.add(progress, PHASES, 1);
      const result = evaluator.evaluate(filter, event, () => Atomics.add(progress, PHASES, 1));
      const { sent, problem } = result;
      outcomes[number % outcomes.length] = problem ? NONE : sent ? SENT : NOT_SENT;
      return [result, clock.worked() - began];
    });
    parentPort?.postMessage(results);
  });
}

main(workerData);
