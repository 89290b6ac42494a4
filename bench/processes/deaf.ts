import { createServer } from "node:net";
import { serveCalls } from "../parts/child.ts";

/** The calls accepted by a process whose receivers drop packets. */
export type DeafMethods = {
  /** Listens on one port of some addresses, with the shortest queue of connections. */
  listen(argument: { addresses: string[]; port: number }): Promise<void>;
  /** Never accepts a connection again, and never returns: once its queue is full, Linux drops the next SYN. */
  block(argument: null): void;
};

/** The interval at which a blocked process looks whether its parent still runs, in milliseconds. */
const LOOK_MS = 1_000;

serveCalls({
  async listen({ addresses, port }) {
    const listening = addresses.map(
      (host) =>
        new Promise<void>((resolve, reject) => {
          createServer().once("error", reject).listen({ host, port, backlog: 1 }, resolve);
        }),
    );
    await Promise.all(listening);
  },
  block() {
    const parent = process.ppid;
    const never = new Int32Array(new SharedArrayBuffer(4));
    while (process.ppid === parent) Atomics.wait(never, 0, 0, LOOK_MS);
    process.exit(0);
  },
} satisfies DeafMethods);
