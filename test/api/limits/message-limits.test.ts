import { gzipSync } from "node:zlib";
import { fromJson, toBinary } from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { checkBinaryElements, MAX_DIGITS, MAX_ELEMENTS } from "../../../src/calls/element-limit.ts";
import { anOrder } from "../../support/grpc-calls.ts";
import {
  BOMBS,
  emptyItems,
  emptyItemsJson,
  enveloped,
  unknownFields,
} from "../../support/hostile-messages.ts";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { useApi } from "../../support/test-api.ts";
import { callByGet, callGrpc, callHttp } from "../../support/wire.ts";

const api = await useApi();

const HEALTH = "/grpc.health.v1.Health/Check";
const BATCH = "EventService/PublishEventBatch";
const DELIVERIES = "DeliveryService/ListDeliveries";
const KIB = 1024;

const ofReason = (reason: string) => expect.objectContaining({ debug: expect.objectContaining({ reason }) });
/** What a call by Connect is refused with. */
const refusal = (status: number, code: string, message: string | RegExp, reason?: string) => ({
  status,
  json: {
    code,
    message: typeof message === "string" ? expect.stringContaining(message) : expect.stringMatching(message),
    ...(reason === undefined ? {} : { details: expect.arrayContaining([ofReason(reason)]) }),
  },
});
/** The same by gRPC. */
const refusedByGrpc = (status: number, says: string) => ({ status, message: expect.stringContaining(says) });
const proto = (body: Uint8Array<ArrayBuffer>, headers = {}) => ({ type: "application/proto", body, headers });

describe("methods that need no key", () => {
  test.each(["br", "gzip"])("refuse a %s bomb without decompressing it", async (encoding) => {
    const bomb = BOMBS[encoding] as Buffer<ArrayBuffer>;
    const says = "Check does not accept compressed requests; send them uncompressed";
    const headers = { "Content-Encoding": encoding };
    expect(await callHttp(api, HEALTH, proto(bomb, headers))).toMatchObject(
      refusal(400, "invalid_argument", says),
    );
    const packed = { body: enveloped(bomb, 1), headers: { "grpc-encoding": encoding } };
    expect(await callGrpc(api, HEALTH, packed)).toMatchObject(refusedByGrpc(12, says));
  });

  test("read at most 8 KiB", async () => {
    // Unknown fields are forgotten.
    expect((await callHttp(api, HEALTH, proto(unknownFields(8 * KIB)))).status).toBe(200);
    const tooLong = unknownFields(8 * KIB + 2);
    expect(await callGrpc(api, HEALTH, { body: enveloped(tooLong) })).toMatchObject(
      refusedByGrpc(8, "8192 bytes"),
    );
    for (const path of [HEALTH, "SessionService/SignIn", "SessionService/GetSession"])
      expect(await callHttp(api, path, proto(tooLong))).toMatchObject(
        refusal(413, "resource_exhausted", "8192 bytes", "MESSAGE_TOO_LARGE"),
      );
  });
});

describe("methods that need a key", () => {
  test("read at most 64 KiB of a message that is not compressed, in every protocol", async () => {
    const [fits, tooLong] = [unknownFields(64 * KIB), unknownFields(64 * KIB + 2)];
    const web = (body: Uint8Array) =>
      callHttp(api, DELIVERIES, { type: "application/grpc-web+proto", body: enveloped(body) });
    expect((await callHttp(api, DELIVERIES, proto(fits))).status).toBe(200);
    expect((await callGrpc(api, DELIVERIES, { body: enveloped(fits) })).status).toBe(0);
    expect((await web(fits)).text).toContain("grpc-status: 0");
    const says = "a message of this method may have at most 65536 bytes, uncompressed; send less at once";
    expect(await callHttp(api, DELIVERIES, proto(tooLong))).toMatchObject(
      refusal(413, "resource_exhausted", says, "MESSAGE_TOO_LARGE"),
    );
    expect(await callGrpc(api, DELIVERIES, { body: enveloped(tooLong) })).toMatchObject(
      refusedByGrpc(8, says),
    );
    expect((await web(tooLong)).text).toMatch(/grpc-status: 8\r\n/);
  });

  test.each(Object.entries(BOMBS))(
    "decompress no more of %s than the method's limit",
    async (encoding, bomb) => {
      const headers = { "Content-Encoding": encoding };
      expect(await callHttp(api, DELIVERIES, proto(bomb, headers))).toMatchObject(
        refusal(413, "resource_exhausted", "65536 bytes, uncompressed", "MESSAGE_TOO_LARGE"),
      );
      const packed = { body: enveloped(bomb, 1), headers: { "grpc-encoding": encoding } };
      expect((await callGrpc(api, DELIVERIES, packed)).status).toBe(8);
    },
  );

  test("say so when a compressed message cannot be decompressed, in the query of a GET too", async () => {
    const headers = { "Content-Encoding": "gzip" };
    const wrong = refusal(400, "invalid_argument", "not valid gzip");
    expect(await callHttp(api, DELIVERIES, { headers })).toMatchObject(wrong);
    const cut = BOMBS.gzip?.subarray(0, 40) as Buffer<ArrayBuffer>;
    expect(await callHttp(api, DELIVERIES, proto(cut, headers))).toMatchObject(wrong);
    const message = cut.toString("base64url");
    const query = { encoding: "proto", base64: "1", compression: "gzip", message };
    expect(await callByGet(api, DELIVERIES, query)).toMatchObject(refusal(400, "invalid_argument", "gzip"));
  });

  test("take each member of an enumeration once at most in a list", async () => {
    const body = JSON.stringify({ states: Array(1_000).fill("DELIVERY_STATE_FAILED") });
    const says = /^states has 1000 values, more than the \d that exist; list each once$/;
    expect(await callHttp(api, DELIVERIES, { body })).toMatchObject(
      refusal(400, "invalid_argument", says, "FIELDS_INVALID"),
    );
  });
});

describe("a message of very many elements", () => {
  const complex = (message: string) => refusal(400, "invalid_argument", message, "MESSAGE_TOO_COMPLEX");
  const MANY = `more than ${MAX_ELEMENTS} fields and list items`;
  const text = (body: string | Buffer<ArrayBuffer>) => ({ type: "application/json", body });
  /** A field of one message of up to 2 MiB. */
  const within = (number: number, message: Buffer<ArrayBuffer>): Buffer<ArrayBuffer> => {
    const { length } = message;
    const head = [(number << 3) | 2, (length & 127) | 128, ((length >> 7) & 127) | 128, length >> 14];
    return Buffer.concat([Buffer.from(head), message]);
  };
  // One event whose order has very many lines: event.order_dispatched.lines.
  const nested = within(1, within(11, Buffer.alloc(2 * MAX_ELEMENTS + 2, Buffer.from([0x32, 0x00]))));

  test.each([
    ["in binary", proto(emptyItems(MAX_ELEMENTS + 1)), MANY],
    ["in JSON", text(emptyItemsJson("events", MAX_ELEMENTS + 1)), MANY],
    ["that are unknown", proto(unknownFields(4 * MAX_ELEMENTS)), MANY],
    ["that are nested", proto(nested), MANY],
    ["that are nested and compressed", proto(gzipSync(nested), { "Content-Encoding": "gzip" }), MANY],
    ["nested very deeply in JSON", text(`{"events":${"[".repeat(100_000)}`), "levels deep"],
    [
      "with a number of very many digits",
      text(JSON.stringify({ events: [{ orderDispatched: { orderId: "1".repeat(100_000) } }] })),
      `more than ${MAX_DIGITS} digits`,
    ],
  ])("is refused before it is parsed, %s", async (_which, call, says) => {
    expect(await callHttp(api, BATCH, call)).toMatchObject(complex(says));
  });

  test("is refused when the elements are in the values of a map", () => {
    const map = fromJson(StructSchema, { list: Array(MAX_ELEMENTS).fill(true) });
    expect(() => checkBinaryElements(StructSchema, toBinary(StructSchema, map))).toThrow(MANY);
  });

  test("leaves room for the largest batch: a thousand events, with lines, in 4 MiB", async () => {
    const line = { productId: 7n, sku: "LAMP-01", quantity: 1 };
    const order = { orderNumber: "9".repeat(3_000), lines: Array(20).fill(line) };
    const events = Array.from({ length: 1_000 }, () => anOrder(order));
    const { results } = await api.client(EventService).publishEventBatch({ events });
    expect(results.filter(({ result }) => result.case === "published")).toHaveLength(1_000);
  });
});

describe("a refusal that repeats what the caller sent arrives, in every protocol, when that is", () => {
  const HALF = "half of a surrogate pair";
  test.each<[what: string, body: string | number[], says: string]>([
    [HALF, '{"pageToken":"\\ud800"}', HALF],
    // The parser of JSON cuts a pair in half where it quotes the text.
    ["cut into half a pair", `z"name":"${"\u{10000}".repeat(20)}"}`, "not valid JSON"],
    ["cut behind half a pair", `xz"name":"${"\u{10000}".repeat(20)}"}`, "not valid JSON"],
    ["longer than the trailers of HTTP/2", JSON.stringify({ ["x".repeat(60 * KIB)]: 1 }), "xxx"],
    ["no UTF-8 at all", [0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d], ""],
  ])("%s", async (_what, sent, says) => {
    const body = Buffer.from(sent as string);
    expect(await callHttp(api, DELIVERIES, { body })).toMatchObject(refusal(400, "invalid_argument", says));
    const call = { type: "application/grpc+json", body: enveloped(body) };
    const { status, message } = await callGrpc(api, DELIVERIES, call);
    expect([status, message.length < 2_000]).toEqual([3, true]);
    const web = await callHttp(api, DELIVERIES, { ...call, type: "application/grpc-web+json" });
    expect(web.text).toContain("grpc-status: 3");
  });

  test.each(["\\ud83d\\ude00", "\\\\ud800"])("but %s is text like any other", async (service) => {
    const { json: answer } = await callHttp(api, HEALTH, { body: `{"service":"${service}"}` });
    expect(answer).toMatchObject({ code: "not_found" });
  });
});

describe("status and code agree", () => {
  test("when a binary message is malformed, or the query of a GET is not base64", async () => {
    const malformed = refusal(400, "invalid_argument", "");
    expect(await callHttp(api, DELIVERIES, proto(new Uint8Array([0xff])))).toMatchObject(malformed);
    const query = { encoding: "proto", base64: "1", message: "!" };
    expect(await callByGet(api, DELIVERIES, query)).toMatchObject(malformed);
    const keyless = await callByGet(api, DELIVERIES, query, { key: null });
    expect(keyless).toMatchObject(refusal(401, "unauthenticated", ""));
  });

  test("when a message is flagged as compressed, and no header names the encoding", async () => {
    const body = enveloped(gzipSync(""), 1);
    for (const headers of [{}, { "grpc-encoding": "identity" }])
      expect(await callGrpc(api, DELIVERIES, { body, headers })).toMatchObject(
        refusedByGrpc(3, "grpc-encoding names no encoding"),
      );
    const type = "application/connect+proto";
    const stream = await callHttp(api, "/grpc.health.v1.Health/Watch", { type, body });
    expect(stream.text).toContain("connect-content-encoding names no encoding");
  });

  test.each(["zstd", "gzip, br", "x".repeat(2_000)])(
    "when the query of a GET names an unknown encoding: %s",
    async (compression) => {
      const answer = await callByGet(api, DELIVERIES, { compression, message: "{}" });
      expect(answer).toMatchObject(refusal(400, "invalid_argument", "use one of gzip, br, deflate"));
    },
  );

  test("when the Host header is no host", async () => {
    const head = ["Host: a b", "Connection: close", "Content-Type: application/json", "Content-Length: 2"];
    const answer = await sendRaw(api.httpPort, `POST ${HEALTH} HTTP/1.1\r\n${head.join("\r\n")}\r\n\r\n{}`);
    expect([parseRaw(answer).status, answer]).toEqual([400, expect.stringContaining("Host header")]);
  });
});
