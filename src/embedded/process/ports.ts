import { once } from "node:events";
import { createConnection, createServer } from "node:net";

/** How far above a taken port to look before asking the system for any: a near one is easier to remember. */
const NEARBY = 20;

/**
 * A free TCP port on 127.0.0.1: the first free one of `wanted` (most wanted first), else the next above the
 * first of them, else any. Ports in `not` are left out. Free when asked; whoever takes it must be ready to lose it.
 */
export async function choosePort(wanted: readonly number[], not: readonly number[] = []): Promise<number> {
  const first = wanted[0] ?? 0;
  const nearby = Array.from({ length: NEARBY }, (_, index) => first + 1 + index);
  for (const port of first > 0 ? [...wanted, ...nearby] : []) {
    if (!not.includes(port) && (await isPortFree(port))) return port;
  }
  for (;;) {
    const port = await anyFreePort();
    if (!not.includes(port)) return port;
  }
}

/** Whether nothing listens on this port of 127.0.0.1 and it can be listened on. */
export async function isPortFree(port: number): Promise<boolean> {
  if (!Number.isInteger(port) || port <= 0 || port > 65_535) return false;
  // Where a wildcard listener does not stop a bind to 127.0.0.1 (macOS), the connection tells.
  return !(await accepts(port)) && (await canListen(port));
}

/**
 * Which ports of a child to try: the one kept from before unless the caller now asks for another, then the
 * asked one.
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
    server.listen({ host: "127.0.0.1", port, exclusive: true });
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
