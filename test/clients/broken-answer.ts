import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";

const FRAME_HEAD_BYTES = 9;
const HEADERS_FRAME = 1;

/**
 * Starts a proxy before the gRPC listener, until the test ends, that loses the first answer: it breaks the connection when
 * the service answers its first call.
 */
export async function loseFirstAnswer(port: number) {
  let hasBroken = false;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    const end = () => [client, upstream].forEach((socket) => void socket.destroy());
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => {}).on("close", end);
    }
    client.pipe(upstream);
    let unread = Buffer.alloc(0);
    upstream.on("data", (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk]);
      while (unread.length >= FRAME_HEAD_BYTES) {
        if (!hasBroken && unread[3] === HEADERS_FRAME) {
          hasBroken = true;
          return end();
        }
        const size = FRAME_HEAD_BYTES + unread.readUIntBE(0, 3);
        if (unread.length < size) break;
        unread = unread.subarray(size);
      }
      return client.write(chunk);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return {
    /** `127.0.0.1:port`. */
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Whether an answer was lost. */
    hasBroken: () => hasBroken,
  };
}
