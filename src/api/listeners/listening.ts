/** A listener that accepts callers. */
export interface Listener {
  /** The port it got, also when any was asked for. */
  port: number;
  /** Stops accepting, lets what is in flight finish for a bounded time, then ends the rest. */
  close(): Promise<void>;
}

/** An error of `listen`, said so that it names what to change. */
export function listenError(error: unknown, port: number, variable: string): Error {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "EADDRINUSE") {
    return new Error(`port ${port} is in use by another program; set ${variable} to another port`, {
      cause: error,
    });
  }
  if (code === "EACCES") {
    return new Error(`port ${port} may not be used by this user; set ${variable} to a port above 1023`, {
      cause: error,
    });
  }
  return new Error(`cannot listen on port ${port} (${variable}): ${(error as Error).message}`, {
    cause: error,
  });
}
