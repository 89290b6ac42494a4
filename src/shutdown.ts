/** Resolves at Ctrl-C or SIGTERM. A second one ends the process at once: whoever insists has a reason. */
export function untilToldToStop(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let told = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (told) process.exit(130);
        told = true;
        resolve(signal);
      });
    }
  });
}
