/** The interval between checks whether the parent npm process still exists, in milliseconds. */
const PARENT_CHECK_MS = 1_000;
/** The time after the first signal in which further ones are ignored, in milliseconds. */
const REPEATED_SIGNAL_MS = 1_000;
/** The parent at the start: it may end while the rest of the code loads. */
const PARENT = process.ppid;

/**
 * Resolves when the process should stop: on SIGINT, SIGTERM or SIGHUP (the terminal was closed), or when the parent
 * `npm start` has ended, because npm passes SIGTERM only to its shell. A signal more than a second after the first ends
 * the process immediately.
 */
export function untilToldToStop(): Promise<void> {
  return new Promise((resolve) => {
    let toldAt: number | undefined;
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
      process.on(signal, () => {
        // Nothing can be printed any more, and the error must not end the process.
        if (signal === "SIGHUP")
          for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
        // One Ctrl-C arrives twice where /bin/sh is bash: node is then npm's child, gets it from the terminal, and npm forwards it.
        if (toldAt !== undefined && performance.now() - toldAt > REPEATED_SIGNAL_MS) process.exit(130);
        toldAt ??= performance.now();
        resolve();
      });
    }
    if (process.env.npm_lifecycle_event === undefined) return;
    if (process.ppid !== PARENT) return resolve();
    const check = setInterval(() => {
      if (process.ppid === PARENT) return;
      clearInterval(check);
      resolve();
    }, PARENT_CHECK_MS);
  });
}
