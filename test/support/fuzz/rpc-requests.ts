import { brotliCompressSync, gzipSync } from "node:zlib";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { BOMBS, enveloped } from "../hostile-messages.ts";
import type { FuzzRequest, Protocol } from "./fuzz-request.ts";
import { mutated, noise, seldom } from "./generators.ts";
import { keyHeader, otherContentType, seldomHeaders } from "./headers.ts";
import { type Format, type KnownValues, messageBytes } from "./messages.ts";

/** What requests are made up from. */
export interface Served {
  services: readonly DescService[];
  known: KnownValues;
  /** Secrets of keys; the first may do everything. */
  keys: readonly string[];
}

/** How a body, or each message in it, is compressed: as its header says, or not. Undefined: no header. */
type Packing = readonly [encoding: string | undefined, pack: (bytes: Buffer) => Buffer];

const PLAIN: Packing = [undefined, (bytes) => bytes];
const PACKED: Packing[] = [
  ["gzip", gzipSync],
  ["br", brotliCompressSync],
  ["gzip", (bytes) => Buffer.concat([gzipSync(bytes), gzipSync(bytes)])],
  ...Object.entries(BOMBS).map(([encoding, bomb]): Packing => [encoding, () => bomb]),
];
const anyEncoding = fc.constantFrom(
  undefined,
  "gzip",
  "br",
  "identity",
  "",
  "deflate",
  "gzip, br",
  "__proto__",
);
const anyPack = fc.constantFrom(
  PLAIN[1],
  gzipSync,
  (bytes: Buffer) => gzipSync(bytes).subarray(0, -5),
  (bytes: Buffer) => brotliCompressSync(bytes).subarray(0, -1),
);
const packing = seldom(
  fc.constant(PLAIN),
  fc.oneof(fc.constantFrom(...PACKED), fc.tuple(anyEncoding, anyPack)),
  6,
);

/** The path of a method; now and then of one that does not exist, or spelt in another way. */
function pathOf(method: DescMethod): fc.Arbitrary<string> {
  const path = `/${method.parent.typeName}/${method.name}`;
  const others = [
    ...["x", "/", "%zz", "%00", ";a=b", "#a", "?a=%zz", "?connect=v1&encoding=json&message={}"].map(
      (end) => path + end,
    ),
    `${path}?${"a=b&".repeat(1_000)}`,
    `/x${path}`,
    `/${path}`,
    path.toLowerCase(),
    `/${method.parent.typeName}`,
    `/webhook.v1.Unknown/${method.name}`,
    path.replace(/.$/, (end) => `%${end.charCodeAt(0).toString(16)}`),
  ];
  return seldom(fc.constant(path), fc.constantFrom(...others), 30);
}

const isUnary = ({ methodKind }: DescMethod) => methodKind === "unary";
const isRead = ({ idempotency }: DescMethod) =>
  idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
const readsOne = (method: DescMethod) => isUnary(method) || method.methodKind === "server_streaming";

/** A body of envelopes: most often as the method wants them. */
function envelopes(
  method: DescMethod,
  messages: fc.Arbitrary<Buffer>,
  isPacked: boolean,
): fc.Arbitrary<Buffer> {
  const flags = seldom(fc.constant(isPacked ? 1 : 0), fc.constantFrom(0, 1, 2, 3, 4, 0x80, 0x81, 0xff), 20);
  const envelope = fc.tuple(messages, flags).map((parts) => enveloped(...parts));
  const lengths = fc.constantFrom(0, 1, 2, 1_000, 65_537, 0x7fff_ffff, 0xffff_ffff);
  const wrongLength = fc.tuple(envelope, lengths).map(([bytes, length]) => {
    bytes.writeUInt32BE(length, 1);
    return bytes;
  });
  const several = fc.array(envelope, { maxLength: 4 }).map((list) => Buffer.concat(list));
  return fc.oneof(
    { weight: readsOne(method) ? 20 : 5, arbitrary: envelope },
    { weight: readsOne(method) ? 1 : 15, arbitrary: several },
    { weight: 1, arbitrary: wrongLength },
    { weight: 1, arbitrary: messages },
    { weight: 1, arbitrary: noise },
    { weight: 2, arbitrary: mutated(envelope) },
  );
}

interface Shape {
  protocol: Protocol;
  /** Right content types, below `application/`. */
  types: readonly string[];
  /** The header that names the encoding. */
  encodingHeader: string;
  isEnveloped: boolean;
  /** How many of a hundred requests go over HTTP/2. */
  overHttp2: number;
  /** Whether the protocol calls the method at all. */
  calls: (method: DescMethod) => boolean;
}

const unary = { encodingHeader: "content-encoding", isEnveloped: false, overHttp2: 15, calls: isUnary };
const anyMethod = { encodingHeader: "grpc-encoding", isEnveloped: true, calls: () => true };
const SHAPES: readonly Shape[] = [
  { ...unary, protocol: "Connect JSON", types: ["json"] },
  { ...unary, protocol: "Connect binary", types: ["proto"] },
  {
    protocol: "Connect streams",
    types: ["connect+json", "connect+proto"],
    encodingHeader: "connect-content-encoding",
    isEnveloped: true,
    overHttp2: 50,
    calls: (method) => !isUnary(method),
  },
  { ...anyMethod, protocol: "gRPC", types: ["grpc", "grpc+proto", "grpc+json"], overHttp2: 93 },
  {
    ...anyMethod,
    protocol: "gRPC-Web",
    types: ["grpc-web", "grpc-web+proto", "grpc-web+json"],
    overHttp2: 15,
  },
];

const formatOf = (type: string): Format => (type.endsWith("json") ? "json" : "proto");

function shaped(shape: Shape, method: DescMethod, { known, keys }: Served): fc.Arbitrary<FuzzRequest> {
  const contents = shape.types.map((type) => {
    const messages = messageBytes(method, formatOf(type), known);
    return packing.chain((packed) => {
      const [encoding, pack] = packed;
      const bodies = shape.isEnveloped
        ? envelopes(method, messages.map(pack), packed !== PLAIN)
        : seldom(
            messages.map(pack),
            messages.map((bytes) => enveloped(bytes)),
            30,
          );
      const types = seldom(fc.constant(`application/${type}`), otherContentType, 25);
      return fc.record({ type: types, encoding: fc.constant(encoding), body: bodies });
    });
  });
  return fc
    .record({
      content: fc.oneof(...contents),
      key: keyHeader(keys),
      more: seldomHeaders,
      path: pathOf(method),
      method: seldom(
        fc.constant("POST"),
        fc.constantFrom("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"),
        40,
      ),
      over: fc.nat(99).map((n) => (n < shape.overHttp2 ? ("HTTP/2" as const) : ("HTTP/1.1" as const))),
      unfinished: seldom(fc.constant(false), fc.constant(true), 1_000),
    })
    .map(({ content: { type, encoding, body }, key, more, unfinished, ...request }) => ({
      protocol: shape.protocol,
      ...request,
      headers: {
        ...(type === undefined ? {} : { "content-type": type }),
        ...(shape.protocol === "gRPC" ? { te: "trailers" } : {}),
        ...(encoding === undefined ? {} : { [shape.encodingHeader]: encoding }),
        ...key,
        ...more,
      },
      body,
      // Whoever publishes may keep a stream open for as long as they like.
      unfinished: unfinished && readsOne(method),
      rpc: method,
    }));
}

type Parameter = readonly [name: string, value: string];

const ODD_PARAMETERS: Parameter[] = Object.entries({
  connect: ["v1", "v2", ""],
  encoding: ["json", "proto", "xml", "JSON", ""],
  base64: ["0", "1", "true", ""],
  compression: ["gzip", "br", "identity", "deflate", "", "__proto__"],
  message: ["!", "A", "e30", "e30=", "e30==", "4pyT", "+/+/", "-_-_", "{}", "", "%"],
  timeout: ["1"],
  "": [""],
}).flatMap(([name, values]) => values.map((value): Parameter => [name, value]));
const ODD_QUERIES = ["", "%", "&&&", "=", "message=%ff&encoding=json&connect=v1", "message=%zz&base64=1"];

/** Connect's unary calls by GET, with the message in the query. */
function byGet(method: DescMethod, { known, keys }: Served): fc.Arbitrary<FuzzRequest> {
  const messages = (["proto", "json"] as const).map((format) =>
    fc
      .tuple(messageBytes(method, format, known), packing, fc.boolean())
      .map(([bytes, [encoding, pack], base64]): Parameter[] => {
        const sent = pack(bytes).subarray(0, 6_000);
        const isEncoded = base64 || format === "proto" || encoding !== undefined;
        return [
          ["connect", "v1"],
          ["encoding", format],
          ["message", isEncoded ? sent.toString("base64url") : sent.toString()],
          ...(isEncoded ? [["base64", "1"] as const] : []),
          ...(encoding === undefined ? [] : [["compression", encoding] as const]),
        ];
      }),
  );
  const message = fc.oneof(...messages);
  const changed = message.chain((usual) =>
    fc
      .tuple(fc.subarray(usual), fc.subarray(ODD_PARAMETERS, { maxLength: 3 }))
      .map(([kept, added]) => [...kept, ...added]),
  );
  const query = seldom(message, changed, 3).map((list) =>
    list.map((pair) => pair.map((text) => encodeURIComponent(text.toWellFormed())).join("=")).join("&"),
  );
  return fc
    .record({
      query: seldom(query, fc.constantFrom(...ODD_QUERIES), 40),
      key: keyHeader(keys),
      more: seldomHeaders,
      verb: seldom(fc.constant("GET"), fc.constant("HEAD"), 30),
    })
    .map(({ query: text, key, more, verb }) => ({
      protocol: "Connect GET",
      over: "HTTP/1.1",
      method: verb,
      path: `/${method.parent.typeName}/${method.name}?${text}`,
      headers: { ...key, ...more },
      body: undefined,
      unfinished: false,
      rpc: method,
    }));
}

/** Requests of every protocol but REST, for every method of every service. */
export function rpcRequests(served: Served): fc.Arbitrary<FuzzRequest> {
  const methods = served.services.flatMap((service) => service.methods);
  const each = SHAPES.map((shape) => {
    const called = methods.filter(shape.calls).map((method) => shaped(shape, method, served));
    // A stream's protocol has few methods.
    return { weight: shape.protocol === "Connect streams" ? 1 : 2, arbitrary: fc.oneof(...called) };
  });
  // Most methods are not called by GET, and say so.
  const gets = methods
    .filter(isUnary)
    .map((method) => ({ weight: isRead(method) ? 6 : 1, arbitrary: byGet(method, served) }));
  return fc.oneof(...each, { weight: 2, arbitrary: fc.oneof(...gets) });
}
