import { once } from "node:events";
import { createServer } from "node:net";

/** A listening server. */
export interface Listener {
  /** The actual port, also if any free one was requested. */
  port: number;
  /** Stops accepting connections, waits a limited time for calls in flight, then ends the rest. */
  close(): Promise<void>;
}

/** Converts an error of `listen` into a message with the remedy. */
export function listenError(error: unknown, port: number, variable: string): Error {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "EADDRINUSE") {
    return new Error(`port ${port} is in use by another program; set ${variable} to another port`, {
      cause: error,
    });
  }
  if (code === "EACCES") {
    return new Error(
      `port ${port} requires privileges that this user lacks; set ${variable} to a port above 1023`,
      {
        cause: error,
      },
    );
  }
  return new Error(`cannot listen on port ${port} (${variable}): ${(error as Error).message}`, {
    cause: error,
  });
}

/**
 * Checks that a port can be listened on, before something is started that takes long.
 *
 * @param variable the setting with the port
 * @throws Error that names the port, the setting and the remedy
 */
export async function assertFreePort(host: string, port: number, variable: string): Promise<void> {
  // Any free port was requested.
  if (port === 0) return;
  // A client that connects meanwhile must not keep the port.
  const server = createServer((socket) => socket.destroy());
  try {
    server.listen(port, host);
    await once(server, "listening");
  } catch (error) {
    throw listenError(error, port, variable);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}
