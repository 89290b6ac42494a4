import { brotliCompressSync, gzipSync } from "node:zlib";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { BOMBS, enveloped } from "../hostile-messages.ts";
import { keyHeader, otherContentType, seldomHeaders } from "./fuzz-headers.ts";
import { type Format, type KnownValues, messageBytes } from "./fuzz-messages.ts";
import type { FuzzRequest, Protocol } from "./fuzz-request.ts";
import { randomBytes } from "./mutated-bytes.ts";

/** What requests are made up from. */
export interface Served {
  services: readonly DescService[];
  known: KnownValues;
  /** Secrets of keys; the first may do everything. */
  keys: readonly string[];
}

/** How a body, or each message in it, is compressed: as its header says, or not. */
interface Packing {
  /** Undefined: no header. */
  encoding: string | undefined;
  pack: (bytes: Buffer) => Buffer;
  /** Whether an envelope has the flag of compressed messages. */
  flag: boolean;
}

const seldom = <T, U = T>(usual: fc.Arbitrary<T>, other: fc.Arbitrary<U>, weight = 12): fc.Arbitrary<T | U> =>
  fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: other });

const same = (bytes: Buffer) => bytes;
const PLAIN: Packing = { encoding: undefined, pack: same, flag: false };
const PACKINGS: readonly Packing[] = [
  { encoding: "gzip", pack: gzipSync, flag: true },
  { encoding: "br", pack: brotliCompressSync, flag: true },
  { encoding: "gzip", pack: same, flag: true },
  { encoding: "br", pack: same, flag: true },
  { encoding: "br", pack: gzipSync, flag: true },
  { encoding: "gzip", pack: gzipSync, flag: false },
  { encoding: undefined, pack: gzipSync, flag: true },
  { encoding: undefined, pack: same, flag: true },
  { encoding: "identity", pack: same, flag: true },
  { encoding: "", pack: same, flag: true },
  { encoding: "deflate", pack: same, flag: true },
  { encoding: "gzip, br", pack: gzipSync, flag: true },
  { encoding: "__proto__", pack: same, flag: true },
  { encoding: "gzip", pack: (bytes) => gzipSync(bytes).subarray(0, -5), flag: true },
  { encoding: "br", pack: (bytes) => brotliCompressSync(bytes).subarray(0, -1), flag: true },
  { encoding: "gzip", pack: (bytes) => Buffer.concat([gzipSync(bytes), gzipSync(bytes)]), flag: true },
  { encoding: "gzip", pack: () => BOMBS.gzip as Buffer, flag: true },
  { encoding: "br", pack: () => BOMBS.br as Buffer, flag: true },
];
const packing = seldom(fc.constant(PLAIN), fc.constantFrom(...PACKINGS), 6);

/** Any HTTP method that is not the right one. */
const otherMethod = fc.constantFrom("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND");

/** The path of a method; now and then of one that does not exist, or spelt in another way. */
function pathOf(method: DescMethod): fc.Arbitrary<string> {
  const path = `/${method.parent.typeName}/${method.name}`;
  const others = [
    `${path}x`,
    `/x${path}`,
    path.toLowerCase(),
    `${path}/`,
    `/${path}`,
    path.replace("/", "//"),
    `/${method.parent.typeName}`,
    `/webhook.v1.Unknown/${method.name}`,
    path.replace(/.$/, (end) => `%${end.charCodeAt(0).toString(16)}`),
    `${path}%zz`,
    `${path}%00`,
    `${path};a=b`,
    `${path}?a=%zz`,
    `${path}?connect=v1&encoding=json&message={}`,
    `${path}#a`,
    `${path}?${"a=b&".repeat(1_000)}`,
  ];
  return seldom(fc.constant(path), fc.constantFrom(...others), 30);
}

/** A body that is compressed in a way that is chosen later. */
type Body = (packing: Packing) => Buffer;

/** A body of envelopes: most often as the method wants them. */
function envelopes(method: DescMethod, messages: fc.Arbitrary<Buffer>): fc.Arbitrary<Body> {
  const otherFlags = fc.constantFrom(0, 1, 2, 3, 4, 0x80, 0x81, 0xff);
  const envelope = fc
    .tuple(seldom(fc.constant(undefined), otherFlags, 20), messages)
    .map(([flags, bytes]): Body => {
      return ({ pack, flag }) => enveloped(pack(bytes), flags ?? (flag ? 1 : 0));
    });
  const wrongLength = fc
    .tuple(envelope, fc.constantFrom(0, 1, 2, 1_000, 65_537, 0x7fff_ffff, 0xffff_ffff), fc.boolean())
    .map(
      ([body, length, add]): Body =>
        (packing) => {
          const changed = body(packing);
          changed.writeUInt32BE(add ? Math.min(changed.length - 5 + length, 0xffff_ffff) : length, 1);
          return changed;
        },
    );
  const together = (list: readonly Body[]): Body => {
    return (packing) => Buffer.concat(list.map((body) => body(packing)));
  };
  const bare = messages.map(
    (bytes): Body =>
      ({ pack }) =>
        pack(bytes),
  );
  const noise = randomBytes.map(
    (bytes): Body =>
      () =>
        bytes,
  );
  const cutOff = fc.tuple(envelope, fc.nat(20)).map(([body, n]): Body => {
    return (packing) => body(packing).subarray(0, -n - 1);
  });
  const streams = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
  return fc.oneof(
    { weight: streams ? 5 : 20, arbitrary: envelope },
    { weight: streams ? 15 : 1, arbitrary: fc.array(envelope, { maxLength: 4 }).map(together) },
    { weight: 1, arbitrary: wrongLength },
    { weight: 1, arbitrary: bare },
    { weight: 1, arbitrary: noise },
    { weight: 1, arbitrary: fc.tuple(envelope, noise).map(together) },
    { weight: 1, arbitrary: cutOff },
  );
}

/** The body of a unary call by Connect; now and then in an envelope, where it does not belong. */
function wholeBody(messages: fc.Arbitrary<Buffer>): fc.Arbitrary<Body> {
  return seldom(
    messages.map(
      (bytes): Body =>
        ({ pack }) =>
          pack(bytes),
    ),
    messages.map(
      (bytes): Body =>
        () =>
          enveloped(bytes),
    ),
    30,
  );
}

interface Shape {
  protocol: Protocol;
  /** Right content types, with the format of their messages. */
  types: readonly (readonly [type: string, format: Format])[];
  /** The header that names the encoding. */
  encodingHeader: string;
  enveloped: boolean;
  /** How many of a hundred requests go over HTTP/2. */
  overHttp2: number;
  /** Whether the protocol calls the method at all. */
  calls: (method: DescMethod) => boolean;
}

const isUnary = ({ methodKind }: DescMethod) => methodKind === "unary";

const SHAPES: readonly Shape[] = [
  {
    protocol: "Connect JSON",
    types: [["application/json", "json"]],
    encodingHeader: "content-encoding",
    enveloped: false,
    overHttp2: 15,
    calls: isUnary,
  },
  {
    protocol: "Connect binary",
    types: [["application/proto", "proto"]],
    encodingHeader: "content-encoding",
    enveloped: false,
    overHttp2: 15,
    calls: isUnary,
  },
  {
    protocol: "Connect streams",
    types: [
      ["application/connect+json", "json"],
      ["application/connect+proto", "proto"],
    ],
    encodingHeader: "connect-content-encoding",
    enveloped: true,
    overHttp2: 50,
    calls: (method) => !isUnary(method),
  },
  {
    protocol: "gRPC",
    types: [
      ["application/grpc", "proto"],
      ["application/grpc+proto", "proto"],
      ["application/grpc+json", "json"],
    ],
    encodingHeader: "grpc-encoding",
    enveloped: true,
    overHttp2: 93,
    calls: () => true,
  },
  {
    protocol: "gRPC-Web",
    types: [
      ["application/grpc-web", "proto"],
      ["application/grpc-web+proto", "proto"],
      ["application/grpc-web+json", "json"],
    ],
    encodingHeader: "grpc-encoding",
    enveloped: true,
    overHttp2: 15,
    calls: () => true,
  },
];

const unfinished = seldom(fc.constant(false), fc.constant(true), 1_000);

function shaped(shape: Shape, method: DescMethod, { known, keys }: Served): fc.Arbitrary<FuzzRequest> {
  const content = fc.oneof(
    ...shape.types.map(([type, format]) => {
      const messages = messageBytes(method, format, known);
      return fc.record({
        type: fc.constant(type),
        packed: packing,
        body: shape.enveloped ? envelopes(method, messages) : wholeBody(messages),
      });
    }),
  );
  return fc
    .record({
      content,
      otherType: seldom(fc.constant(false as const), fc.tuple(otherContentType), 25),
      key: keyHeader(keys),
      more: seldomHeaders,
      path: pathOf(method),
      method: seldom(fc.constant("POST"), otherMethod, 40),
      over: fc.nat(99).map((n) => (n < shape.overHttp2 ? ("HTTP/2" as const) : ("HTTP/1.1" as const))),
      unfinished,
    })
    .map(({ content: { type, packed, body }, otherType, key, more, unfinished: open, ...request }) => {
      const contentType = otherType === false ? type : otherType[0];
      return {
        protocol: shape.protocol,
        ...request,
        headers: {
          ...(contentType === undefined ? {} : { "content-type": contentType }),
          ...(shape.protocol === "gRPC" ? { te: "trailers" } : {}),
          ...(packed.encoding === undefined ? {} : { [shape.encodingHeader]: packed.encoding }),
          ...key,
          ...more,
        },
        body: body(packed),
        // Whoever publishes may keep a stream open for as long as they like.
        unfinished: open && (isUnary(method) || method.methodKind === "server_streaming"),
        rpc: method,
      };
    });
}

type Parameter = [name: string, value: string];

/** Connect's unary calls by GET, with the message in the query. */
function byGet(method: DescMethod, { known, keys }: Served): fc.Arbitrary<FuzzRequest> {
  const messages = (["proto", "json"] as const).map((format) =>
    messageBytes(method, format, known).map((bytes) => ({ format, bytes })),
  );
  const message = fc
    .tuple(fc.oneof(...messages), packing, fc.boolean())
    .map(([{ format, bytes }, { encoding, pack }, base64]): Parameter[] => {
      const sent = pack(bytes).subarray(0, 6_000);
      const encoded = base64 || format === "proto" || encoding !== undefined;
      return [
        ["connect", "v1"],
        ["encoding", format],
        ...(encoding === undefined ? [] : [["compression", encoding] satisfies Parameter]),
        ...(encoded ? [["base64", "1"] satisfies Parameter] : []),
        ["message", encoded ? sent.toString("base64url") : sent.toString()],
      ];
    });
  const odd = fc.constantFrom<Parameter>(
    ...(["v1", "v2", ""].map((value) => ["connect", value]) as Parameter[]),
    ...(["json", "proto", "xml", "JSON", ""].map((value) => ["encoding", value]) as Parameter[]),
    ...(["0", "1", "true", ""].map((value) => ["base64", value]) as Parameter[]),
    ...(["gzip", "br", "identity", "deflate", "", "__proto__"].map((value) => [
      "compression",
      value,
    ]) as Parameter[]),
    ...(["!", "A", "e30", "e30=", "e30==", "4pyT", "+/+/", "-_-_", "{}", "", "%"].map((value) => [
      "message",
      value,
    ]) as Parameter[]),
    ["timeout", "1"],
    ["", ""],
  );
  const parameters = fc
    .tuple(
      message,
      seldom(fc.constant<Parameter[]>([]), fc.array(odd, { maxLength: 3 }), 3),
      seldom(fc.constant(-1), fc.nat(4), 8),
    )
    .map(([usual, added, without]) => [...usual.filter((_, place) => place !== without), ...added]);
  const query = seldom(
    parameters.map((list) => list.map((pair) => pair.map(percentEncoded).join("=")).join("&")),
    fc.constantFrom(
      "",
      "%",
      "message=%ff&encoding=json&connect=v1",
      "&&&",
      "=",
      "message=%zz&base64=1&encoding=proto",
    ),
    40,
  );
  return fc
    .record({
      query,
      key: keyHeader(keys),
      more: seldomHeaders,
      head: seldom(fc.constant("GET"), fc.constant("HEAD"), 30),
    })
    .map(({ query: text, key, more, head }) => ({
      protocol: "Connect GET",
      over: "HTTP/1.1",
      method: head,
      path: `/${method.parent.typeName}/${method.name}?${text}`,
      headers: { ...key, ...more },
      body: undefined,
      unfinished: false,
      rpc: method,
    }));
}

function percentEncoded(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

/** Requests of every protocol but REST, for every method of every service. */
export function rpcRequests(served: Served): fc.Arbitrary<FuzzRequest> {
  const methods = served.services.flatMap((service) => service.methods);
  const each = SHAPES.flatMap((shape) => {
    const called = methods.filter(shape.calls).map((method) => shaped(shape, method, served));
    // A stream's protocol has few methods.
    return { weight: shape.protocol === "Connect streams" ? 1 : 2, arbitrary: fc.oneof(...called) };
  });
  // Most methods are not called by GET, and say so.
  const gets = methods.filter(isUnary).map((method) => ({
    weight: method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS ? 6 : 1,
    arbitrary: byGet(method, served),
  }));
  return fc.oneof(...each, { weight: 2, arbitrary: fc.oneof(...gets) });
}
