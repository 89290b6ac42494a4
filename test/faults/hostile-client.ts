import * as http2 from "node:http2";
import { connect } from "node:net";
import { BOMBS, emptyItems, enveloped, unknownFields } from "../support/hostile-messages.ts";

/** The client's one argument, as JSON. It sends its parent a message once it has begun. */
export interface Attack {
  httpPort: number;
  grpcPort: number;
  /** A key's secret; none without one. */
  key?: string;
  requestsPerSecond: number;
}

const MIB = 1_048_576;
/** How long the client keeps a connection that nobody closes, in milliseconds. */
const GIVE_UP_MS = 3_000;

const CHECK = "/grpc.health.v1.Health/Check";
const LIST_DELIVERIES = "/webhook.v1.DeliveryService/ListDeliveries";
const BATCH = "/webhook.v1.EventService/PublishEventBatch";
const REGISTER = "/webhook.v1.EventTypeService/RegisterEventTypes";
const REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

const { httpPort, grpcPort, key, requestsPerSecond } = JSON.parse(process.argv[2] as string) as Attack;
const keyHeader: Record<string, string> = key ? { "x-service-key": key } : {};

const MANY_UNKNOWN = unknownFields(5 * MIB);
const MANY_ITEMS = emptyItems(2 * MIB);
/** The same bytes in field 1. */
const MANY_ITEMS_WITHIN = Buffer.concat([Buffer.from([0x0a, 0x80, 0x80, 0x80, 0x02]), MANY_ITEMS]);
const JSON_ITEMS = Buffer.from(`{"events":[${"{},".repeat(MIB)}{}]}`);
const DIGITS = Buffer.from(`{"webhookId":"${"1".repeat(4 * MIB)}"}`);

/** Sends bytes over a connection of their own, and reads what comes. */
function overTcp(port: number, parts: readonly (string | Buffer)[], reads = true): void {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  if (reads) socket.resume();
  for (const part of parts) socket.write(part);
  setTimeout(() => socket.destroy(), GIVE_UP_MS).unref();
}

function post(path: string, type: string, body: Buffer, more: Record<string, string> = {}): void {
  const headers = { host: "x", "content-type": type, "content-length": body.length, ...keyHeader, ...more };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  overTcp(httpPort, [`POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n`, body]);
}

/** A body whose length nobody knows before its end. */
function postInChunks(path: string, type: string, body: Buffer): void {
  const lines = Object.entries(keyHeader).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n${lines.join("")}\r\n`;
  overTcp(httpPort, [head, `${body.length.toString(16)}\r\n`, body, "\r\n0\r\n\r\n"]);
}

let shared: http2.ClientHttp2Session | undefined;

function session(): http2.ClientHttp2Session {
  if (!shared || shared.closed || shared.destroyed) {
    shared = http2.connect(`http://127.0.0.1:${grpcPort}`);
    shared.on("error", () => {});
  }
  return shared;
}

function grpc(
  path: string,
  body: Buffer | undefined,
  more: Record<string, string> = {},
): http2.ClientHttp2Stream {
  const stream = session().request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc+proto",
    te: "trailers",
    ...keyHeader,
    ...more,
  });
  stream.on("error", () => {}).resume();
  if (body) stream.end(body);
  return stream;
}

const gzip = BOMBS.gzip as Buffer;
const br = BOMBS.br as Buffer;

/** One request each. */
const KINDS: (() => void)[] = [
  () => post(CHECK, "application/proto", br, { "content-encoding": "br" }),
  () => void grpc(CHECK, enveloped(gzip, 1), { "grpc-encoding": "gzip" }),
  () => post(CHECK, "application/proto", MANY_UNKNOWN),
  () => postInChunks(CHECK, "application/proto", MANY_UNKNOWN),
  () => void grpc(CHECK, enveloped(MANY_UNKNOWN)),
  () => post("/webhook.v1.WebhookService/CreateWebhook", "application/json", Buffer.alloc(5 * MIB, " ")),
  () => post("/api/webhook", "application/json", JSON_ITEMS),
  () => post(BATCH, "application/proto", br, { "content-encoding": "br" }),
  () => post(BATCH, "application/proto", MANY_ITEMS),
  () => post(BATCH, "application/json", JSON_ITEMS),
  () => void grpc(BATCH, enveloped(MANY_ITEMS)),
  () => void grpc(LIST_DELIVERIES, enveloped(br, 1), { "grpc-encoding": "br" }),
  () => post(LIST_DELIVERIES, "application/json", DIGITS),
  // A set of a million empty files, and one that ends early.
  () => post(REGISTER, "application/proto", MANY_ITEMS_WITHIN),
  () => post(REGISTER, "application/json", JSON_ITEMS),
  () => void grpc(REGISTER, enveloped(MANY_ITEMS_WITHIN.subarray(0, MIB))),
  () => post(CHECK, "application/json", Buffer.from('{"\\ud800":1}')),
  () =>
    void grpc(CHECK, enveloped(Buffer.from('{"\\ud800":1}')), { "content-type": "application/grpc+json" }),
  () =>
    overTcp(
      httpPort,
      ["GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\nAccept-Encoding: br\r\n\r\n".repeat(800)],
      false,
    ),
  // Neither ends its request.
  () => void grpc(CHECK, undefined),
  () => void grpc(REFLECTION, undefined),
  () => grpc(CHECK, undefined).close(http2.constants.NGHTTP2_CANCEL),
];

let sent = 0;
const started = performance.now();
setInterval(() => {
  const due = ((performance.now() - started) / 1_000) * requestsPerSecond;
  // What a busy machine has kept it from sending is not sent all at once.
  sent = Math.max(sent, Math.floor(due) - requestsPerSecond);
  for (; sent < due; sent += 1) KINDS[sent % KINDS.length]?.();
}, 10);
setTimeout(() => process.send?.("begun"), 1_000);
process.on("disconnect", () => process.exit(0));
