import { setTimeout as wait } from "node:timers/promises";
import { serveCalls } from "../parts/child.ts";

/** The calls accepted by a busy loop. */
export type BusyLoopMethods = {
  /** Sets the share of a core to use; 0 stops. */
  use(argument: { part: number }): void;
};

/** The duration of uninterrupted computing, in milliseconds. */
const SLICE_MS = 5;

let part = 0;
let since = { at: 0, cpu: 0 };
const processorMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
};

async function loop(): Promise<void> {
  while (part > 0) {
    const now = performance.now();
    // Makes up for time lost to other processes, as queued work does.
    if (processorMs() - since.cpu < part * (now - since.at)) while (performance.now() - now < SLICE_MS);
    else await wait(1);
    // Allows calls to be processed.
    await new Promise(setImmediate);
  }
}

serveCalls({
  use(argument) {
    const wasIdle = part === 0;
    part = argument.part;
    since = { at: performance.now(), cpu: processorMs() };
    if (wasIdle && part > 0) void loop();
  },
} satisfies BusyLoopMethods);
