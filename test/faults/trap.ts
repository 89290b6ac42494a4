import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";

/** A listener that nobody may connect to. */
export type Trap = Awaited<ReturnType<typeof setTrap>>;

/** Listens on the address; whoever connects is counted and sent away. */
export async function setTrap(address: string, port = 0) {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  }).listen(port, address);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    /** Connections that came all the same. */
    connections: () => connections,
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** Listens on a port of 127.0.0.1 that deliveries may not go to; on another one if a process of this machine has it. */
export async function setTrapOnBlockedPort(): Promise<Trap> {
  for (const port of [6_665, 6_666, 6_667, 6_668, 6_669, 6_697, 10_080]) {
    try {
      return await setTrap("127.0.0.1", port);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
  }
  throw new Error("every blocked port that this test may listen on is taken");
}
