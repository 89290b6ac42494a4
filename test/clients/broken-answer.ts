import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

const FRAME_HEAD_BYTES = 9;
const HEADERS_FRAME = 1;

/** A proxy before the gRPC listener. */
export interface BreakingProxy {
  /** `127.0.0.1:port`. */
  address: string;
  /** Whether an answer was lost. */
  hasBroken(): boolean;
  close(): void;
}

/** Starts a proxy that loses the first answer: it breaks the connection when the service answers its first call. */
export async function loseFirstAnswer(port: number): Promise<BreakingProxy> {
  let hasBroken = false;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    let unread = Buffer.alloc(0);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket
        .on("error", () => {})
        .on("close", () => {
          sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
    }
    client.pipe(upstream);
    upstream.on("data", (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk]);
      while (unread.length >= FRAME_HEAD_BYTES) {
        if (!hasBroken && unread[3] === HEADERS_FRAME) {
          hasBroken = true;
          client.destroy();
          return;
        }
        const end = FRAME_HEAD_BYTES + unread.readUIntBE(0, 3);
        if (unread.length < end) break;
        unread = unread.subarray(end);
      }
      client.write(chunk);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    hasBroken: () => hasBroken,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
