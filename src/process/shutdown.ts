/** The interval between checks whether the parent npm process still exists, in milliseconds. */
const PARENT_CHECK_MS = 1_000;

/**
 * Resolves when the process should stop: on SIGINT or SIGTERM, or when the parent `npm start` has ended, because npm
 * passes SIGTERM only to its shell. A second signal ends the process immediately.
 */
export function untilToldToStop(): Promise<void> {
  return new Promise((resolve) => {
    let told = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (told) process.exit(130);
        told = true;
        resolve();
      });
    }
    if (process.env.npm_lifecycle_event === undefined) return;
    const parent = process.ppid;
    const check = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(check);
      resolve();
    }, PARENT_CHECK_MS);
  });
}
