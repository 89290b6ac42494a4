import { setTimeout as wait } from "node:timers/promises";
import { serveCalls } from "../parts/child.ts";

/** What a busy loop can be asked. */
export type BusyLoopMethods = {
  /** Uses that part of a core from now on; 0 ends it. */
  use(argument: { part: number }): void;
};

/** How long it computes without a pause, in milliseconds. */
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
    // What it could not get while others were busy it makes up for, as work that waits does.
    if (processorMs() - since.cpu < part * (now - since.at)) while (performance.now() - now < SLICE_MS);
    else await wait(1);
    // Lets a call in.
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
