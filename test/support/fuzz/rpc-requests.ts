import { brotliCompressSync, gzipSync } from "node:zlib";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { BOMBS, enveloped } from "../hostile-messages.ts";
import type { FuzzRequest, Protocol } from "./fuzz-request.ts";
import { mutated, noise, seldom } from "./generators.ts";
import { keyHeader, otherContentType, otherMethod, seldomHeaders } from "./headers.ts";
import { type KnownValues, messageBytes } from "./messages.ts";

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
const ENCODINGS = [undefined, "gzip", "br", "identity", "", "deflate", "gzip, br", "__proto__"];
const CUT = [gzipSync, brotliCompressSync].map((pack) => (bytes: Buffer) => pack(bytes).subarray(0, -1));
const packing = seldom(
  fc.constant(PLAIN),
  fc.oneof(
    fc.constantFrom(...PACKED),
    fc.tuple(fc.constantFrom(...ENCODINGS), fc.constantFrom(PLAIN[1], gzipSync, ...CUT)),
  ),
  6,
);

const usualPath = ({ name, parent }: DescMethod) => `/${parent.typeName}/${name}`;

/** The path of a method; now and then of one that does not exist, or spelt in another way. */
function pathOf(method: DescMethod): fc.Arbitrary<string> {
  const path = usualPath(method);
  const ends = ["x", "/", "%zz", "%00", ";a=b", "#a", "?a=%zz", `?${"a=b&".repeat(1_000)}`];
  const others = [
    ...[...ends, "?connect=v1&encoding=json&message={}"].map((end) => path + end),
    ...["/x", "/"].map((start) => start + path),
    path.toLowerCase(),
    `/${method.parent.typeName}`,
    `/webhook.v1.Unknown/${method.name}`,
    path.replace(/.$/, (end) => `%${end.charCodeAt(0).toString(16)}`),
  ];
  return seldom(fc.constant(path), fc.constantFrom(...others), 30);
}

const isUnary = ({ methodKind }: DescMethod) => methodKind === "unary";
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
    { weight: 3, arbitrary: fc.oneof(wrongLength, messages, noise) },
    { weight: 2, arbitrary: mutated(envelope) },
  );
}

interface Shape {
  protocol: Protocol;
  /** Right content types, below `application/`. */
  types: readonly string[];
  /** The header that names the encoding of a body, or of the messages in its envelopes. */
  encodingHeader: string;
  /** The version of HTTP that most requests go over. */
  over: FuzzRequest["over"];
  /** Whether the protocol calls the method at all. */
  calls: (method: DescMethod) => boolean;
}

const typesOf = (type: string) => [type, `${type}+proto`, `${type}+json`];
const anyMethod = { encodingHeader: "grpc-encoding", calls: () => true };
const unary = { encodingHeader: "content-encoding", over: "HTTP/1.1" as const, calls: isUnary };
const SHAPES: readonly Shape[] = [
  { protocol: "Connect JSON", types: ["json"], ...unary },
  { protocol: "Connect binary", types: ["proto"], ...unary },
  {
    protocol: "Connect streams",
    types: ["connect+json", "connect+proto"],
    encodingHeader: "connect-content-encoding",
    over: "HTTP/2",
    calls: (method) => !isUnary(method),
  },
  { protocol: "gRPC", types: typesOf("grpc"), over: "HTTP/2", ...anyMethod },
  { protocol: "gRPC-Web", types: typesOf("grpc-web"), over: "HTTP/1.1", ...anyMethod },
];

/** The content type, the encoding and the body of requests to a method. */
function contents({ types, encodingHeader }: Shape, method: DescMethod, known: KnownValues) {
  const each = types.map((type) => {
    const messages = messageBytes(method, type.endsWith("json") ? "json" : "proto", known);
    return packing.chain((packed) => {
      const [encoding, pack] = packed;
      const inEnvelope = messages.map((bytes) => enveloped(bytes));
      return fc.record({
        type: seldom(fc.constant(`application/${type}`), otherContentType, 25),
        encoding: fc.constant(encoding === undefined ? {} : { [encodingHeader]: encoding }),
        body:
          encodingHeader === "content-encoding"
            ? seldom(messages.map(pack), inEnvelope, 30)
            : envelopes(method, messages.map(pack), packed !== PLAIN),
      });
    });
  });
  return fc.oneof(...each);
}

function shaped(shape: Shape, method: DescMethod, { known, keys }: Served): fc.Arbitrary<FuzzRequest> {
  const { protocol, over } = shape;
  const otherVersion = over === "HTTP/2" ? "HTTP/1.1" : "HTTP/2";
  return fc
    .record({
      content: contents(shape, method, known),
      key: keyHeader(keys),
      more: seldomHeaders,
      path: pathOf(method),
      method: seldom(fc.constant("POST"), otherMethod, 40),
      over: seldom(fc.constant(over), fc.constant<FuzzRequest["over"]>(otherVersion), 8),
      unfinished: seldom(fc.constant(false), fc.constant(true), 1_000),
    })
    .map(({ content: { type, encoding, body }, key, more, unfinished, ...request }) => {
      const typed = type === undefined ? {} : { "content-type": type };
      const trailers = protocol === "gRPC" ? { te: "trailers" } : {};
      return {
        ...request,
        protocol,
        rpc: method,
        headers: { ...typed, ...trailers, ...encoding, ...key, ...more },
        body,
        // Whoever publishes may keep a stream open for as long as they like.
        unfinished: unfinished && readsOne(method),
      };
    });
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
    fc.tuple(fc.subarray(usual), fc.subarray(ODD_PARAMETERS, { maxLength: 3 })).map((lists) => lists.flat()),
  );
  const query = seldom(message, changed, 3).map((list) =>
    list.map((pair) => pair.map((text) => encodeURIComponent(text.toWellFormed())).join("=")).join("&"),
  );
  return fc
    .record({
      text: seldom(query, fc.constantFrom(...ODD_QUERIES), 40),
      key: keyHeader(keys),
      more: seldomHeaders,
      verb: seldom(fc.constant("GET"), fc.constant("HEAD"), 30),
    })
    .map(({ text, key, more, verb }) => ({
      protocol: "Connect GET",
      over: "HTTP/1.1",
      method: verb,
      path: `${usualPath(method)}?${text}`,
      headers: { ...key, ...more },
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
  const isRead = ({ idempotency }: DescMethod) =>
    idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
  const gets = methods
    .filter(isUnary)
    .map((method) => ({ weight: isRead(method) ? 6 : 1, arbitrary: byGet(method, served) }));
  return fc.oneof(...each, { weight: 2, arbitrary: fc.oneof(...gets) });
}
