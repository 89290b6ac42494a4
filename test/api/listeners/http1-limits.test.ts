import { once } from "node:events";
import { connect as openSocket } from "node:net";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { MAX_PIPELINED } from "../../../src/api/listeners/unread-bodies.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();

/** Opens a connection until the test ends, and reads it unless told not to. Counts how often a text has arrived. */
async function open(reads = true) {
  const socket = openSocket(api.httpPort, "127.0.0.1").on("error", () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  let received = "";
  if (reads)
    socket.setEncoding("latin1").on("data", (chunk: string) => {
      received += chunk;
    });
  return { socket, received: () => received, count: (text: string) => received.split(text).length - 1 };
}

const GET = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\nAccept-Encoding: br\r\n\r\n";

test("requests that a client sends without awaiting answers are answered, up to a limit", async () => {
  const { socket, received, count } = await open();
  socket.write(GET.repeat(MAX_PIPELINED));
  await expect.poll(() => count("HTTP/1.1 200 OK")).toBe(MAX_PIPELINED);
  // The connection goes on.
  socket.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  await expect.poll(received).toContain('{"status":"alive"}');
});

test("a client that sends 800 at once, and reads nothing, loses its connection", async () => {
  const { socket } = await open(false);
  socket.write(GET.repeat(800));
  await once(socket.resume(), "close");
});

/** The head of a POST with a body of JSON. */
const head = (path: string, ...headers: string[]) =>
  [`POST ${path} HTTP/1.1`, "Host: x", "Content-Type: application/json", ...headers, "", ""].join("\r\n");
const CREATE = "/webhook.v1.WebhookService/CreateWebhook";

const CHUNKS = 16_384;
const CHUNK = Buffer.concat([Buffer.from("10000\r\n"), Buffer.alloc(65_536, " "), Buffer.from("\r\n")]);
const CHUNKED = "Transfer-Encoding: chunked";
const KEY = `X-Service-Key: ${api.adminKey}`;
const MEASURED = `Content-Length: ${CHUNKS * CHUNK.byteLength}`;

test.each([
  ["a caller without a key", 401, [CHUNKED]],
  ["a caller without a key who names the length", 401, [MEASURED]],
  ["a caller whose message is too large", 413, [CHUNKED, KEY]],
  ["a caller whose message is too large and who names the length", 413, [MEASURED, KEY]],
])("%s gets the answer at once, and the rest of the body is not read", async (_who, status, headers) => {
  const { socket, received } = await open();
  const closed = new Promise((resolve) => socket.once("close", resolve));
  // Apart from what follows, which then fills the server's buffer to the last byte before it answers.
  const write = promisify(socket.write.bind(socket) as (text: string, done: () => void) => void);
  await write(head(CREATE, ...headers));
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
  expect(received()).toContain(`HTTP/1.1 ${status} `);
  // Otherwise the client could send its next request on this connection.
  expect(received().toLowerCase()).toContain("\r\nconnection: close\r\n");
  // What the sockets' buffers hold, and no more.
  expect(CHUNKS - left).toBeLessThan(1_024);
});

test.each(["/api/webhook", CREATE])(
  "a caller without a key is refused by %s before a byte of the body is read, and keeps its connection if it sends a short one",
  async (path) => {
    const { socket, count } = await open();
    socket.write(head(path, "Content-Length: 20000"));
    await expect.poll(() => count("HTTP/1.1 401 ")).toBe(1);
    socket.write(" ".repeat(20_000));
    socket.write(`${head(path, "Content-Length: 2")}{}`);
    await expect.poll(() => count("HTTP/1.1 401 ")).toBe(2);
  },
);
