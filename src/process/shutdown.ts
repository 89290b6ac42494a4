/** How often a service under npm looks whether npm is still there, in milliseconds. */
const PARENT_CHECK_MS = 1_000;

/**
 * Resolves when the process is told to stop: at Ctrl-C or SIGTERM, or when the `npm start` above it was ended, since
 * npm passes a SIGTERM to its shell only. A second signal ends the process at once: whoever insists has a reason.
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
