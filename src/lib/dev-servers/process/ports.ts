import { once } from "node:events";
import { createConnection, createServer } from "node:net";

/** The number of ports above a taken one to try before asking the system for any. A near port is easier to remember. */
const MAX_NEARBY_PORTS = 20;

/**
 * A TCP port that is free on all addresses: the first free one of `wanted`, in order of preference; else the next free one above
 * the first of them; else any. Excludes the ports in `not`. Another process may take the port before the caller does.
 */
export async function choosePort(wanted: readonly number[], not: readonly number[] = []): Promise<number> {
  const first = wanted[0] ?? 0;
  const nearby = Array.from({ length: MAX_NEARBY_PORTS }, (_, index) => first + 1 + index);
  for (const port of first > 0 ? [...wanted, ...nearby] : []) {
    if (!not.includes(port) && (await isPortFree(port))) return port;
  }
  for (;;) {
    const port = await anyFreePort();
    if (!not.includes(port)) return port;
  }
}

/** Whether nothing listens on this port, on any address, and it is possible to listen on it. */
export async function isPortFree(port: number): Promise<boolean> {
  if (!Number.isInteger(port) || port <= 0 || port > 65_535) return false;
  // On macOS a wildcard listener does not prevent binding to 127.0.0.1, so test with a connection.
  return !(await accepts(port)) && (await canListen(port));
}

/**
 * The ports to try for a child process: the stored one, unless the caller requests a different port than before; then
 * the requested one.
 */
export function portWishes(asked: number, kept: { asked?: number; port?: number } | undefined): number[] {
  if (kept?.port === undefined) return [asked];
  return kept.asked === asked ? [kept.port, asked] : [asked, kept.port];
}

async function accepts(port: number): Promise<boolean> {
  const socket = createConnection({ host: "127.0.0.1", port });
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

async function canListen(port: number): Promise<boolean> {
  const server = createServer();
  try {
    // On all addresses, IPv6 included: clients of `localhost` may connect to either family.
    server.listen({ port, exclusive: true });
    await once(server, "listening");
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}

async function anyFreePort(): Promise<number> {
  const server = createServer();
  server.listen({ host: "127.0.0.1", port: 0, exclusive: true });
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("the system gave no port");
  return address.port;
}
