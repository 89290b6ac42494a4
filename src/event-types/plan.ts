import { Worker } from "node:worker_threads";
import { findBreakingChanges } from "./breaking.ts";
import { type RegistrationPlan, refused } from "./model.ts";
import type { Prepared, Stored } from "./prepare.ts";

const PROGRAM = new URL("thread.ts", import.meta.url);
/** The memory of a thread, in mebibytes: a set of 16 MiB can decode to more. */
const MEMORY = { maxOldGenerationSizeMb: 512, maxYoungGenerationSizeMb: 64 };

/**
 * Finds what a registration would change, or why it is refused. Never throws for bad input. Files that are not given stay; a given one
 * replaces the stored one of its path.
 *
 * @param stored what is registered
 * @param given a FileDescriptorSet of at most 16 MiB
 * @throws Error if buf is not installed, or the signal is aborted
 */
export async function planRegistration(
  stored: Stored,
  given: Uint8Array,
  signal?: AbortSignal,
): Promise<RegistrationPlan> {
  const { plan, images, places } = await prepareInThread(stored, given, signal);
  if (!images) return plan;
  const found = await findBreakingChanges(images, places, signal);
  return found.length > 0 ? refused([...plan.problems, ...found]) : plan;
}

/** Prepares a plan in a thread of its own: a large set takes seconds and memory. The thread ends with the call. */
async function prepareInThread(stored: Stored, given: Uint8Array, signal?: AbortSignal): Promise<Prepared> {
  signal?.throwIfAborted();
  const workerData = { stored, given };
  // Without the options of the process: a module that it preloads is not meant for this thread.
  const options = { workerData, resourceLimits: MEMORY, execArgv: [], name: "event-types" };
  const worker = new Worker(PROGRAM, options);
  const { promise, resolve, reject } = Promise.withResolvers<Prepared>();
  worker.once("message", resolve);
  worker.once("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "ERR_WORKER_OUT_OF_MEMORY") return reject(error);
    const problem = `the set is too large: it takes more than ${MEMORY.maxOldGenerationSizeMb} MiB to read`;
    const remedy = "Register fewer files at once, or simpler ones";
    resolve({ plan: refused([{ file: "", subject: "", problem, remedy }]), places: new Map() });
  });
  worker.once("exit", () => reject(new Error("the thread that reads event types ended")));
  const abort = () => reject(signal?.reason);
  signal?.addEventListener("abort", abort);
  try {
    return await promise;
  } finally {
    signal?.removeEventListener("abort", abort);
    await worker.terminate();
  }
}
