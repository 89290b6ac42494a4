import fc from "fast-check";
import type { FuzzRequest } from "./fuzz-request.ts";
import { mutated, noise, seldom } from "./generators.ts";
import { rightRest } from "./rest-requests.ts";

const HEAD = "Host: localhost\r\nContent-Type: application/json\r\n";
const REQUESTS = [
  `POST /grpc.health.v1.Health/Check HTTP/1.1\r\n${HEAD}Content-Length: 2\r\n\r\n{}`,
  `POST /webhook.v1.WebhookService/ListWebhooks HTTP/1.1\r\n${HEAD}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
];
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);

const frame = fc
  .tuple(fc.nat(12), fc.nat(255), fc.nat(5), fc.uint8Array({ maxLength: 40 }))
  .map(([type, flags, stream, payload]) =>
    Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream, ...payload]),
  );
const http2Bytes = fc
  .tuple(seldom(fc.constant(SETTINGS), fc.constant(Buffer.alloc(0)), 9), fc.array(frame, { maxLength: 8 }))
  .map(([settings, frames]) => Buffer.concat([PREFACE, settings, ...frames]));

/** Bytes on a connection: requests of HTTP/1.1 with bytes changed, and frames of HTTP/2 in any order. */
export function rawConnections(key: string): fc.Arbitrary<FuzzRequest> {
  const rest = rightRest(key).map(({ method, path, headers, body = Buffer.alloc(0) }) => {
    const lines = Object.entries({ ...headers, "content-length": body.length }).map(
      ([name, value]) => `${name}: ${value}\r\n`,
    );
    return `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join("")}\r\n${body}`;
  });
  const request = fc.oneof(rest, fc.constantFrom(...REQUESTS)).map((text) => Buffer.from(text));
  const http1 = fc.oneof(
    mutated(request),
    fc.tuple(request, noise).map((list) => Buffer.concat(list)),
  );
  const raw = (protocol: "raw HTTP/1.1" | "raw HTTP/2", bytes: fc.Arbitrary<Buffer>) =>
    // Now and then to the listener of the other version.
    fc
      .tuple(bytes, fc.constantFrom("HTTP/1.1" as const, "HTTP/2" as const))
      .map(([body, over]): FuzzRequest => ({ protocol, over, body, method: "", path: "", headers: {} }));
  return fc.oneof(raw("raw HTTP/1.1", http1), raw("raw HTTP/2", fc.oneof(http2Bytes, mutated(http2Bytes))));
}
