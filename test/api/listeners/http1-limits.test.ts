import { once } from "node:events";
import { connect as openSocket, type Socket } from "node:net";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { MAX_PIPELINED } from "../../../src/api/listeners/unread-bodies.ts";
import { part } from "../../support/parts.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({ page: (await part("page")).folder });
});
afterAll(() => api.stop());

async function open(): Promise<Socket> {
  const socket = openSocket(api.httpPort, "127.0.0.1");
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  return socket;
}

const count = (text: string, part: string) => text.split(part).length - 1;
const GET = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\nAccept-Encoding: br\r\n\r\n";

test("requests that a client sends without awaiting answers are answered, up to a limit", async () => {
  const socket = await open();
  let received = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    received += chunk;
  });
  socket.write(GET.repeat(MAX_PIPELINED));
  await expect.poll(() => count(received, "HTTP/1.1 200 OK")).toBe(MAX_PIPELINED);
  // The connection goes on.
  socket.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  await expect.poll(() => received.includes('{"status":"alive"}')).toBe(true);
});

test("a client that sends 800 at once, and reads nothing, loses its connection", async () => {
  const socket = await open();
  socket.write(GET.repeat(800));
  await once(socket.resume(), "close");
});

const CHUNKS = 16_384;
const CHUNK = Buffer.concat([Buffer.from("10000\r\n"), Buffer.alloc(65_536, " "), Buffer.from("\r\n")]);
const CHUNKED = "Transfer-Encoding: chunked";
const MEASURED = `Content-Length: ${CHUNKS * CHUNK.byteLength}`;

test.each([
  ["a caller without a key", {}, CHUNKED, 401],
  ["a caller without a key who names the length", {}, MEASURED, 401],
  ["a caller whose message is too large", { key: true }, CHUNKED, 429],
  ["a caller whose message is too large and who names the length", { key: true }, MEASURED, 429],
])(
  "%s gets the answer at once, and the rest of the body is not read",
  async (_, { key }: { key?: boolean }, framing, status) => {
    const socket = await open();
    let received = "";
    socket.setEncoding("latin1").on("data", (chunk: string) => {
      received += chunk;
    });
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const keyHeader = key ? `X-Service-Key: ${api.adminKey}\r\n` : "";
    const head = `POST /webhook.v1.WebhookService/CreateWebhook HTTP/1.1\r\nHost: x\r\n${keyHeader}Content-Type: application/json\r\n${framing}\r\n\r\n`;
    // Apart from what follows, which then fills the server's buffer to the last byte before it answers.
    await promisify(socket.write.bind(socket) as (text: string, done: () => void) => void)(head);
    // A gigabyte, if it were read.
    let left = CHUNKS;
    const send = () => {
      while (left > 0 && !socket.destroyed) {
        left -= 1;
        if (!socket.write(CHUNK)) {
          socket.once("drain", send);
          return;
        }
      }
    };
    send();
    await closed;
    expect(received).toContain(`HTTP/1.1 ${status} `);
    // Otherwise the client could send its next request on this connection.
    expect(received.toLowerCase()).toContain("\r\nconnection: close\r\n");
    // What the sockets' buffers hold, and no more.
    expect(CHUNKS - left).toBeLessThan(1_024);
  },
);

test("a client that sends a short body although it was refused keeps its connection", async () => {
  const socket = await open();
  let received = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    received += chunk;
  });
  const head =
    "POST /webhook.v1.WebhookService/CreateWebhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  socket.write(`${head}Content-Length: 20000\r\n\r\n`);
  await expect.poll(() => count(received, "HTTP/1.1 401 ")).toBe(1);
  socket.write(" ".repeat(20_000));
  socket.write(`${head}Content-Length: 2\r\n\r\n{}`);
  await expect.poll(() => count(received, "HTTP/1.1 401 ")).toBe(2);
});

test.each(["/api/webhook", "/webhook.v1.WebhookService/CreateWebhook"])(
  "a caller without a key is refused by %s before a byte of the body is read",
  async (path) => {
    const socket = await open();
    let received = "";
    socket.setEncoding("latin1").on("data", (chunk: string) => {
      received += chunk;
    });
    const head = `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n`;
    socket.write(head);
    await expect.poll(() => count(received, "HTTP/1.1 401 ")).toBe(1);
  },
);
