/** The interval between checks whether the parent process still exists, in milliseconds. Only under npm. */
const PARENT_CHECK_MS = 1_000;
/** The time after the first signal in which further ones are ignored, in milliseconds. */
const REPEATED_SIGNAL_MS = 1_000;
/** The id of the parent process when this module loads. Read early, because the parent may end while other modules load. */
const PARENT = process.ppid;

/**
 * Resolves when the process should stop: on SIGINT, SIGTERM or SIGHUP (the terminal was closed). Under npm, also when the
 * parent process has ended, because npm passes SIGTERM only to the shell in which it runs the script. A signal more than a
 * second after the first one ends the process immediately, with status 130.
 */
export function untilToldToStop(): Promise<void> {
  return new Promise((resolve) => {
    let toldAt: number | undefined;
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
      process.on(signal, () => {
        // The terminal is closed, so printing fails. The error must not end the process.
        if (signal === "SIGHUP")
          for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
        // A single Ctrl-C can arrive twice: from the terminal, and from npm. npm forwards the signal to its child, which is this process
        // itself if /bin/sh is bash.
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
