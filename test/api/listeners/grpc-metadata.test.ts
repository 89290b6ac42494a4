import * as http2 from "node:http2";
import { buffer } from "node:stream/consumers";
import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { enveloped } from "../../support/hostile-messages.ts";
import { useApi } from "../../support/test-api.ts";

const LIST = "/webhook.v1.WebhookService/ListWebhooks";
const CALM = http2.constants.NGHTTP2_ENHANCE_YOUR_CALM;
const OK = 0;
/** Some clients accept no larger trailers. */
const MAX_TRAILER_BYTES = 8_192;

const api = await useApi();

function openSession(): http2.ClientHttp2Session {
  const session = http2.connect(api.grpcUrl);
  onTestFinished(() => session.destroy());
  return session.on("error", () => {});
}

interface Options {
  session?: http2.ClientHttp2Session;
  body?: string | Buffer;
  trailers?: http2.OutgoingHttpHeaders;
}

/** Calls ListWebhooks over gRPC, with headers that replace the usual ones; undefined removes one. */
async function call(headers: http2.OutgoingHttpHeaders, options: Options = {}) {
  const { session = openSession(), body = Buffer.alloc(0), trailers } = options;
  const usual = { "content-type": "application/grpc+proto", te: "trailers", "x-service-key": api.adminKey };
  const sent = { ":method": "POST", ":path": LIST, ...usual, ...headers };
  const stream = session.request(sent, { endStream: false, waitForTrailers: trailers !== undefined });
  let answered: http2.IncomingHttpHeaders = {};
  let ending: http2.IncomingHttpHeaders = {};
  stream.on("response", (got) => {
    answered = got;
  });
  stream.on("trailers", (got) => {
    ending = got;
  });
  stream.on("wantTrailers", () => {
    // The call may have ended before.
    if (!stream.closed) stream.sendTrailers(trailers ?? {});
  });
  stream.on("error", () => {});
  const closed = new Promise((resolve) => stream.once("close", resolve));
  const text = buffer(stream).then(String, () => "");
  stream.end(enveloped(Buffer.from(body)));
  await closed;
  const all: http2.IncomingHttpHeaders = { ...answered, ...ending };
  const { ":status": http, "grpc-status": status, "grpc-message": message = "" } = all;
  const bytes = Object.entries(all).reduce(
    (sum, [name, value]) => sum + name.length + String(value).length,
    0,
  );
  expect(bytes).toBeLessThan(MAX_TRAILER_BYTES);
  const grpc = status === undefined ? undefined : Number(status);
  return { http, grpc, message: String(message), reset: stream.rstCode, text: await text };
}

const many = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`x-many-${n}`, "v"]));
/** A value that HPACK sends once, and then refers to. */
const REPEATED = "r".repeat(3_000);

test.each<[string, http2.OutgoingHttpHeaders]>([
  ["200 entries", many(200)],
  ["an entry of 20,000 bytes", { "x-huge": "x".repeat(20_000) }],
  ["an entry of 60,000 bytes", { "x-huge-bin": "A".repeat(60_000) }],
  ["15 entries that HPACK sends once", { "x-bomb": Array.from({ length: 15 }, () => REPEATED) }],
])(
  "metadata of %s resets its call and no other, also before the client has heard the limit",
  async (_, headers) => {
    const session = openSession();
    expect((await call(headers, { session })).reset).toBe(CALM);
    expect((await call({}, { session })).grpc).toBe(OK);
    expect((await call(headers, { session })).reset).toBe(CALM);
    expect((await call({}, { session })).grpc).toBe(OK);
  },
);

const ENDLESS = "9".repeat(10_000);
const LONG = "x".repeat(10_000);

test.each<[string, number, string, http2.OutgoingHttpHeaders[]]>([
  [
    "that means nothing to the service is ignored",
    OK,
    "",
    [
      { "x-any-bin": "!!!" },
      { "x-any-bin": ["AA==", "not base64"] },
      { "grpc-status-details-bin": "!!!", "grpc-status": "13", "grpc-message": "%zz" },
      { "x-any": "\u00e4\u00ff" },
      { "x-any": ["1", "2", "2"] },
      Object.fromEntries([
        ["__proto__", "1"],
        ["constructor", "2"],
      ]),
      { "grpc-accept-encoding": LONG },
      { "grpc-accept-encoding": "__proto__, ,,snappy" },
      { "grpc-timeout": "99999999H" },
      { traceparent: LONG },
      { te: undefined },
      { ...many(100) },
    ],
  ],
  [
    "with an invalid deadline is refused",
    Code.InvalidArgument,
    "invalid grpc timeout value",
    [
      "",
      "1",
      "1x",
      "-1S",
      "1.5S",
      "1e3S",
      "0x1S",
      "999999999S",
      "1SS",
      "\u00b2S",
      ENDLESS,
      `${ENDLESS}S`,
    ].map((value) => ({ "grpc-timeout": value })),
  ],
  [
    "with two deadlines is refused",
    Code.InvalidArgument,
    "invalid grpc timeout value: 1S, 2S",
    [{ "grpc-timeout": ["1S", "2S"] }],
  ],
  [
    "with a deadline that has passed is refused",
    Code.DeadlineExceeded,
    "",
    ["0n", "0H"].map((value) => ({ "grpc-timeout": value })),
  ],
  [
    "with an unknown compression is refused",
    Code.Unimplemented,
    "requests cannot be compressed as",
    ["snappy", "gzip, gzip", "__proto__", LONG].map((value) => ({ "grpc-encoding": value })),
  ],
  [
    "with a key that is none is refused",
    Code.Unauthenticated,
    "",
    [[api.adminKey, api.adminKey], "\u00e4", LONG, "", undefined].map((value) => ({
      "x-service-key": value,
    })),
  ],
  ["for no host is refused", Code.InvalidArgument, "is not a valid host", [{ ":authority": "[::1" }]],
])("a call whose metadata %s", async (_, status, words, all) => {
  for (const headers of all) {
    const answer = await call(headers);
    expect(answer, JSON.stringify(headers).slice(0, 100)).toMatchObject({ http: 200, grpc: status });
    expect(decodeURIComponent(answer.message)).toContain(words);
  }
});

test.each([
  ["application/grpc", "", OK],
  ["application/grpc+proto", "", OK],
  ["Application/GRPC", "", OK],
  ["application/grpc+json", "{}", OK],
])("the content type %s is gRPC", async (type, body, status) => {
  expect(await call({ "content-type": type }, { body })).toMatchObject({ http: 200, grpc: status });
});

test.each([
  ...[
    "application/grpc+thrift",
    "application/grpc;charset=utf-16",
    "application/grpcx",
    "text/plain",
    "",
    LONG,
  ],
  undefined,
])("the content type %s is refused with the types that are allowed", async (type) => {
  const { http, text } = await call({ "content-type": type });
  expect(http).toBe(415);
  expect(JSON.parse(text)).toMatchObject({
    code: "unimplemented",
    message: expect.stringContaining("application/grpc"),
  });
});

test("trailers of a client change nothing, and too long ones end no other call", async () => {
  const session = openSession();
  for (const trailers of [{ "grpc-status": "13" }, { "x-any-bin": "!!!" }])
    expect((await call({}, { session, trailers })).grpc).toBe(OK);
  for (const trailers of [many(200), { "x-huge": "x".repeat(20_000) }]) {
    // The call may have been answered before the trailers came.
    const { grpc, reset } = await call({}, { session, trailers });
    expect(grpc === OK || reset === CALM).toBe(true);
    expect((await call({}, { session })).grpc).toBe(OK);
  }
});
