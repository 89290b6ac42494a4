import fc from "fast-check";
import { right as rightRest } from "../request-arbitraries.ts";
import type { FuzzRequest } from "./fuzz-request.ts";
import { mutated, randomBytes } from "./mutated-bytes.ts";

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEALTH = [
  "POST /grpc.health.v1.Health/Check HTTP/1.1",
  "Host: localhost",
  "Content-Type: application/json",
  "Content-Length: 2",
  "",
  "{}",
].join("\r\n");
const CHUNKED = [
  "POST /webhook.v1.WebhookService/ListWebhooks HTTP/1.1",
  "Host: localhost",
  "Content-Type: application/json",
  "Transfer-Encoding: chunked",
  "",
  "2",
  "{}",
  "0",
  "",
  "",
].join("\r\n");

/** One frame of HTTP/2. */
function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const anyFrame = fc
  .tuple(fc.nat(12), fc.nat(255), fc.nat(5), fc.uint8Array({ maxLength: 40 }))
  .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload));

const http2Bytes = fc
  .tuple(
    fc.oneof({ weight: 9, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
    fc.array(anyFrame, { maxLength: 8 }),
  )
  .map(([settings, frames]) =>
    Buffer.concat([Buffer.from(PREFACE), ...(settings ? [frame(4, 0, 0, Buffer.alloc(0))] : []), ...frames]),
  );

/** Bytes on a connection: requests of HTTP/1.1 with bytes changed, and frames of HTTP/2 in any order. */
export function rawConnections(key: string): fc.Arbitrary<FuzzRequest> {
  const rest = rightRest(key).map(({ method, path, headers, body }) => {
    const text = body === undefined ? "" : String(body);
    const lines = Object.entries({ ...headers, "content-length": Buffer.byteLength(text) }).map(
      ([name, value]) => `${name}: ${value}\r\n`,
    );
    return Buffer.from(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join("")}\r\n${text}`);
  });
  const request = fc.oneof(
    rest,
    fc.constantFrom(HEALTH, CHUNKED).map((text) => Buffer.from(text)),
  );
  const http1 = fc.oneof(
    mutated(request),
    fc.tuple(request, randomBytes).map((list) => Buffer.concat(list)),
  );
  const raw = (protocol: "raw HTTP/1.1" | "raw HTTP/2", bytes: fc.Arbitrary<Buffer>) =>
    fc.record({
      protocol: fc.constant(protocol),
      // Now and then to the listener of the other version.
      over: fc.constantFrom("HTTP/1.1" as const, "HTTP/2" as const),
      method: fc.constant(""),
      path: fc.constant(""),
      headers: fc.constant({}),
      body: bytes,
      unfinished: fc.constant(false),
      rpc: fc.constant(undefined),
    });
  return fc.oneof(raw("raw HTTP/1.1", http1), raw("raw HTTP/2", fc.oneof(http2Bytes, mutated(http2Bytes))));
}
