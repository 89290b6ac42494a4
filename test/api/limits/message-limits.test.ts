import { once } from "node:events";
import * as http2 from "node:http2";
import { gzipSync } from "node:zlib";
import { fromJson, toBinary } from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import { type Client, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { checkBinaryElements, MAX_DIGITS, MAX_ELEMENTS } from "../../../src/api/limits/element-limit.ts";
import { grpc } from "../../support/clients.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import {
  BOMBS,
  emptyItems,
  emptyItemsJson,
  enveloped,
  unknownFields,
} from "../../support/hostile-messages.ts";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const HEALTH = "/grpc.health.v1.Health/Check";
const BATCH = "/webhook.v1.EventService/PublishEventBatch";
const DELIVERIES = "/webhook.v1.DeliveryService/ListDeliveries";
const KIB = 1024;

interface Answer {
  status: number;
  code: string | undefined;
  message: string | undefined;
  reason: string | undefined;
}

/** An error as Connect writes it. */
interface ConnectJson {
  code?: string;
  message?: string;
  details?: { debug?: { reason?: string } }[];
}

/** Calls by Connect over HTTP/1.1. */
async function post(
  path: string,
  type: string,
  body: Uint8Array<ArrayBuffer> | string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const answer = await fetch(`${api.url}${path}`, {
    method: "POST",
    headers: { "Content-Type": `application/${type}`, ...headers },
    body,
  });
  const isJson = answer.headers.get("content-type")?.startsWith("application/json");
  const { code, message, details } = (isJson ? await answer.json() : {}) as ConnectJson;
  return { status: answer.status, code, message, reason: details?.[0]?.debug?.reason };
}

/** Calls by gRPC; answers its trailers. */
async function overGrpc(
  path: string,
  body: Uint8Array,
  headers: Record<string, string> = {},
): Promise<http2.IncomingHttpHeaders> {
  const session = http2.connect(api.grpcUrl);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc+proto",
    te: "trailers",
    ...headers,
  });
  stream.end(body);
  const [trailers] = await once(stream.resume(), "trailers");
  return trailers;
}

const withKey = () => ({ "X-Service-Key": api.adminKey });

describe("methods that need no key", () => {
  test.each(["br", "gzip"])("refuse a %s bomb without decompressing it", async (encoding) => {
    const bomb = BOMBS[encoding] as Buffer<ArrayBuffer>;
    expect(await post(HEALTH, "proto", bomb, { "Content-Encoding": encoding })).toMatchObject({
      status: 400,
      code: "invalid_argument",
      message: "Check does not accept compressed requests; send them uncompressed",
    });
    const trailers = await overGrpc(HEALTH, enveloped(bomb, 1), { "grpc-encoding": encoding });
    expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual([
      "12",
      "Check does not accept compressed requests; send them uncompressed",
    ]);
  });

  test("read at most 8 KiB", async () => {
    expect((await post(HEALTH, "proto", unknownFields(8 * KIB))).status).toBe(200);
    const tooLarge = {
      status: 429,
      reason: "MESSAGE_TOO_LARGE",
      message: expect.stringContaining("8192 bytes"),
    };
    expect(await post(HEALTH, "proto", unknownFields(8 * KIB + 2))).toMatchObject(tooLarge);
    const trailers = await overGrpc(HEALTH, enveloped(unknownFields(8 * KIB + 2)));
    expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual([
      "8",
      expect.stringContaining("8192 bytes"),
    ]);
    for (const path of [
      "/webhook.v1.SessionService/SignIn",
      "/webhook.v1.SessionService/GetSession",
      "/grpc.health.v1.Health/Check",
    ]) {
      expect(await post(path, "proto", unknownFields(8 * KIB + 2))).toMatchObject(tooLarge);
    }
  });
});

describe("methods that need a key", () => {
  test("refuse callers without one before they read anything", async () => {
    const session = http2.connect(api.grpcUrl);
    onTestFinished(() => session.destroy());
    const stream = session.request({
      ":method": "POST",
      ":path": BATCH,
      "content-type": "application/grpc+proto",
      te: "trailers",
    });
    // Not a byte of the message is sent.
    const [trailers] = await once(stream.resume(), "trailers");
    expect(trailers["grpc-status"]).toBe("16");
  });

  test("decompress no more than the method's limit", async () => {
    for (const [encoding, bomb] of Object.entries(BOMBS)) {
      expect(
        await post(DELIVERIES, "proto", bomb, { ...withKey(), "Content-Encoding": encoding }),
      ).toMatchObject({
        status: 429,
        reason: "MESSAGE_TOO_LARGE",
        message: expect.stringContaining("65536 bytes, uncompressed"),
      });
      const trailers = await overGrpc(DELIVERIES, enveloped(bomb, 1), {
        ...withKey(),
        "grpc-encoding": encoding,
      });
      expect(trailers["grpc-status"]).toBe("8");
    }
  });

  test("say so when a compressed message cannot be decompressed, in the query of a GET too", async () => {
    const headers = { ...withKey(), "Content-Encoding": "gzip" };
    const wrong = {
      status: 400,
      code: "invalid_argument",
      message: expect.stringContaining("not valid gzip"),
    };
    expect(await post(DELIVERIES, "json", "{}", headers)).toMatchObject(wrong);
    const cut = BOMBS.gzip?.subarray(0, 40) as Buffer<ArrayBuffer>;
    expect(await post(DELIVERIES, "proto", cut, headers)).toMatchObject(wrong);
    const query = new URLSearchParams({
      connect: "v1",
      encoding: "proto",
      base64: "1",
      compression: "gzip",
      message: cut.toString("base64url"),
    });
    const answer = await fetch(`${api.url}${DELIVERIES}?${query}`, { headers: withKey() });
    expect([answer.status, await answer.json()]).toMatchObject([400, { code: "invalid_argument" }]);
  });

  test("forget unknown fields", async () => {
    expect((await post(DELIVERIES, "proto", unknownFields(64 * KIB), withKey())).status).toBe(200);
  });

  test("take each member of an enumeration once at most in a list", async () => {
    const states = Array(1_000).fill("DELIVERY_STATE_FAILED");
    expect(await post(DELIVERIES, "json", JSON.stringify({ states }), withKey())).toMatchObject({
      status: 400,
      reason: "FIELDS_INVALID",
      message: expect.stringMatching(/^states has 1000 values, more than the \d that exist; list each once$/),
    });
  });
});

describe("a message of very many elements", () => {
  const complex = { status: 400, code: "invalid_argument", reason: "MESSAGE_TOO_COMPLEX" };

  test("is refused before it is parsed, in binary and in JSON", async () => {
    const count = MAX_ELEMENTS + 1;
    for (const [type, body] of [
      ["proto", emptyItems(count)],
      ["json", emptyItemsJson("events", count)],
    ] as const) {
      expect(await post(BATCH, type, body, withKey())).toMatchObject({
        ...complex,
        message: expect.stringContaining(`more than ${MAX_ELEMENTS} fields and list items`),
      });
    }
    const trailers = await overGrpc(BATCH, enveloped(emptyItems(count)), withKey());
    expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual([
      "3",
      expect.stringContaining(`more than ${MAX_ELEMENTS}`),
    ]);
  });

  test("is refused when the elements are unknown, nested or compressed", async () => {
    expect(await post(BATCH, "proto", unknownFields(4 * MAX_ELEMENTS), withKey())).toMatchObject(complex);
    // One event whose order has very many lines: event.order_dispatched.lines.
    const lines = Buffer.alloc(2 * MAX_ELEMENTS + 2, Buffer.from([0x32, 0x00]));
    const within = (number: number, message: Buffer) => {
      const length: number[] = [];
      for (let rest = message.length; ; rest >>>= 7) {
        if (rest < 128) {
          length.push(rest);
          break;
        }
        length.push((rest & 127) | 128);
      }
      return Buffer.concat([Buffer.from([(number << 3) | 2, ...length]), message]);
    };
    const nested = within(1, within(11, lines));
    expect(await post(BATCH, "proto", nested, withKey())).toMatchObject(complex);
    const headers = { ...withKey(), "Content-Encoding": "gzip" };
    expect(await post(BATCH, "proto", gzipSync(nested), headers)).toMatchObject(complex);
  });

  test("is refused when the elements are in the values of a map", () => {
    const map = fromJson(StructSchema, { list: Array(MAX_ELEMENTS).fill(true) });
    expect(() => checkBinaryElements(StructSchema, toBinary(StructSchema, map))).toThrow(
      `more than ${MAX_ELEMENTS} fields and list items`,
    );
  });

  test("is refused when it is JSON nested very deeply, or a number of very many digits", async () => {
    const deep = `{"events":${"[".repeat(100_000)}`;
    expect(await post(BATCH, "json", deep, withKey())).toMatchObject({
      ...complex,
      message: expect.stringContaining("levels deep"),
    });
    const order = { orderId: "1".repeat(100_000) };
    const digits = JSON.stringify({ events: [{ orderDispatched: order }] });
    expect(await post(BATCH, "json", digits, withKey())).toMatchObject({
      ...complex,
      message: expect.stringContaining(`more than ${MAX_DIGITS} digits`),
    });
  });

  test("leaves room for the largest batch: a thousand events, with lines, in 4 MiB", async () => {
    const client: Client<typeof EventService> = createClient(EventService, grpc(api));
    const event = orderEvent();
    const line = { productId: 7n, sku: "LAMP-01", quantity: 1 };
    const events = Array.from({ length: 1_000 }, (_, n) => ({
      ...event,
      idempotencyKey: `batch-${n}`,
      data: {
        case: "orderDispatched" as const,
        value: { ...event.data.value, orderNumber: "9".repeat(3_000), lines: Array(20).fill(line) },
      },
    }));
    const { results } = await client.publishEventBatch({ events });
    expect(results.filter(({ result }) => result.case === "published")).toHaveLength(1_000);
  });
});

describe("refusals that repeat what the caller sent", () => {
  const LONE = '{"\\ud800":1}';

  test("arrive when that is half of a surrogate pair, in every protocol", async () => {
    const message = expect.stringContaining("half of a surrogate pair");
    expect(await post(HEALTH, "json", LONE)).toMatchObject({
      status: 400,
      code: "invalid_argument",
      message,
    });
    const json = { "content-type": "application/grpc+json" };
    const trailers = await overGrpc(HEALTH, enveloped(Buffer.from(LONE)), json);
    expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual(["3", message]);
    const web = await fetch(`${api.url}${HEALTH}`, {
      method: "POST",
      headers: { "Content-Type": "application/grpc-web+json" },
      body: enveloped(Buffer.from(LONE)),
    });
    expect(await web.text()).toContain("grpc-status: 3");
  });

  test("arrive when the parser of JSON cuts a surrogate pair in half", async () => {
    const body = Buffer.from(`z"name":"${"\u{10000}".repeat(20)}"}`);
    const message = expect.stringContaining("not valid JSON");
    for (const pad of ["", "x"]) {
      const headers = { ...withKey(), "content-type": "application/grpc+json" };
      const trailers = await overGrpc(
        DELIVERIES,
        enveloped(Buffer.concat([Buffer.from(pad), body])),
        headers,
      );
      expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual(["3", message]);
    }
  });

  test("arrive when that is longer than the trailers of HTTP/2 may be", async () => {
    const body = Buffer.from(JSON.stringify({ ["x".repeat(60 * KIB)]: 1 }));
    const headers = { ...withKey(), "content-type": "application/grpc+json" };
    const trailers = await overGrpc(DELIVERIES, enveloped(body), headers);
    expect(trailers["grpc-status"]).toBe("3");
    expect(String(trailers["grpc-message"]).length).toBeLessThan(2_000);
    const answer = await post(DELIVERIES, "json", body, withKey());
    expect(answer.status).toBe(400);
    expect([answer.message?.length, answer.message?.at(-1)]).toEqual([1_000, "…"]);
  });

  test("arrive when that is no UTF-8 at all", async () => {
    const body = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]);
    expect(await post(HEALTH, "json", body)).toMatchObject({ status: 400, code: "invalid_argument" });
    const json = { "content-type": "application/grpc+json" };
    expect((await overGrpc(HEALTH, enveloped(body), json))["grpc-status"]).toBe("3");
  });

  test("whole pairs and escaped backslashes are text like any other", async () => {
    for (const name of ["\\ud83d\\ude00", "\\\\ud800"]) {
      const text = JSON.stringify({ service: JSON.parse(`"${name}"`) }).replace("😀", "\\ud83d\\ude00");
      expect(await post(HEALTH, "json", text)).toMatchObject({ code: "not_found" });
    }
  });
});

describe("status and code agree", () => {
  test("when a binary message is malformed", async () => {
    expect(await post(DELIVERIES, "proto", Buffer.from([0xff]), withKey())).toMatchObject({
      status: 400,
      code: "invalid_argument",
    });
  });

  test.each([
    ["a key", () => withKey(), 400, "invalid_argument"],
    ["no key", () => ({}), 401, "unauthenticated"],
  ])("when the query of a GET is not base64, with %s", async (_, headers, status, code) => {
    const answer = await fetch(`${api.url}${DELIVERIES}?connect=v1&encoding=proto&base64=1&message=!`, {
      headers: headers(),
    });
    expect([answer.status, await answer.json()]).toMatchObject([status, { code }]);
  });

  test("when a message is flagged as compressed, and no header names the encoding", async () => {
    const body = enveloped(gzipSync(""), 1);
    const message = expect.stringContaining("grpc-encoding names no encoding");
    for (const headers of [withKey(), { ...withKey(), "grpc-encoding": "identity" }]) {
      const trailers = await overGrpc(DELIVERIES, body, headers);
      expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual(["3", message]);
    }
    const answer = await fetch(`${api.url}/grpc.health.v1.Health/Watch`, {
      method: "POST",
      headers: { "Content-Type": "application/connect+proto" },
      body,
    });
    expect(await answer.text()).toContain("connect-content-encoding names no encoding");
  });

  test("when the query of a GET names an unknown encoding", async () => {
    // The library compresses an error that repeats a long name.
    for (const compression of ["deflate", "", "gzip, br", "x".repeat(2_000)]) {
      const query = new URLSearchParams({ connect: "v1", encoding: "json", compression, message: "{}" });
      const answer = await fetch(`${api.url}${DELIVERIES}?${query}`, { headers: withKey() });
      expect([answer.status, await answer.json()]).toMatchObject([
        400,
        { code: "invalid_argument", message: expect.stringContaining("use gzip or br") },
      ]);
    }
  });

  test("when the Host header is no host", async () => {
    const body = "{}";
    const answer = await sendRaw(
      api.httpPort,
      `POST ${HEALTH} HTTP/1.1\r\nHost: a b\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n${body}`,
    );
    expect(parseRaw(answer).status).toBe(400);
    expect(answer).toContain("Host header");
  });
});
