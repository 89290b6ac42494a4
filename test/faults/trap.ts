import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";

/** A listener that nobody may connect to. */
export interface Trap {
  port: number;
  /** Connections that came all the same. */
  connections(): number;
  close(): Promise<void>;
}

/** Listens on the address; whoever connects is counted and sent away. */
export async function setTrap(address: string, port = 0): Promise<Trap> {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  }).listen(port, address);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
