import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";

/** The number of ports above a taken one to try before asking the system for any. A near port is easier to remember. */
const MAX_NEARBY_PORTS = 20;

/**
 * A TCP port that is free on all addresses: the first free one of `wanted`, in order of preference; else the next free one above
 * the first of them; else any. Another process may take the port before the caller does.
 */
export async function choosePort(wanted: readonly number[]): Promise<number> {
  const [first = 0] = wanted;
  const nearby = Array.from({ length: MAX_NEARBY_PORTS }, (_, index) => first + 1 + index);
  for (const port of first > 0 ? [...wanted, ...nearby, 0] : [0]) {
    const free = await freePort(port);
    if (free !== null) return free;
  }
  throw new Error("the system has no free port; end programs that listen on ports");
}

/** `port` if nothing listens on it, on any address; a free one for 0; otherwise null. */
async function freePort(port: number): Promise<number | null> {
  const server = createServer();
  try {
    // On all addresses, IPv6 included: clients of `localhost` may connect to either family.
    server.listen({ port, exclusive: true });
    await once(server, "listening");
    return (server.address() as AddressInfo).port;
  } catch {
    return null;
  } finally {
    server.close();
  }
}
