import { expect, onTestFinished, test } from "vitest";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { type RestRequest, useApi } from "../../support/test-api.ts";
import { expectGuarded } from "../listeners/guarded-answers.ts";

const api = await useApi();

const FAILURE = { Success: false, Data: null, Warnings: [expect.any(String)] };

const BODIES: RestRequest[] = [
  {},
  { raw: { body: "<a/>", type: "text/xml" } },
  { raw: { body: "{", type: "application/json" } },
  { raw: { body: "x".repeat(70_000), type: "application/json" } },
];
test.each(["OPTIONS", "POST"])(
  "§7.4: an unknown path is 404 in the envelope, whatever the key or the body: %s",
  async (method) => {
    const Warnings = ["no such path: /api/webhooks; all paths: /openapi.json"];
    for (const body of BODIES) {
      const { status, envelope } = await api.rest(method, "/api/webhooks", { ...body, key: null });
      expect([status, envelope]).toEqual([404, { ...FAILURE, Warnings }]);
    }
  },
);

test.each([
  ["DELETE", "/api/webhook/5", "use DELETE /api/webhook?webhookId=5; "],
  ["DELETE", "/api/v1/webhook/5/?force=1", "use DELETE /api/v1/webhook?webhookId=5; "],
  ["GET", "/api/webhook/5", "use GET /api/webhook/list; "],
  ["DELETE", "/api/webhook/five", ""],
])("§7.4: %s of a webhook by a path is told of the parameter: %s", async (method, path, instead) => {
  const { status, envelope } = await api.rest(method, path);
  const [shown] = path.replace(/\/\?.*/, "").split("?");
  expect([status, envelope.Warnings]).toEqual([
    404,
    [`no such path: ${shown}; ${instead}all paths: /openapi.json`],
  ]);
});

test("§7.2: a method that a path does not take is 400, with those that it takes", async () => {
  const { status, headers, envelope } = await api.rest("PUT", "/api/webhook");
  expect([status, headers.get("allow")]).toEqual([400, "POST, DELETE"]);
  const Warnings = ["/api/webhook does not take PUT; use POST, DELETE"];
  expect(envelope).toEqual({ ...FAILURE, Warnings });
});

const key = () => `Host: a\r\nX-Service-Key: ${api.adminKey}\r\nConnection: close\r\n`;
const POST = "POST /api/webhook HTTP/1.1\r\n{key}";
test.each([
  ["garbage", "this is not HTTP\r\n\r\n"],
  ["binary garbage", "\x16\x03\x01\x02\0\r\n\r\n"],
  ["an unknown method", "FETCH /api/webhook/list HTTP/1.1\r\n{key}\r\n", "use GET, HEAD, POST or DELETE"],
  [
    "headers beyond 16 KiB",
    `GET /api/webhook/list HTTP/1.1\r\n{key}X: ${"x".repeat(20_000)}\r\n\r\n`,
    "more than 16384 bytes; shorten them",
  ],
  ["an address beyond 16 KiB", `GET /api/webhook/list?${"x".repeat(20_000)} HTTP/1.1\r\n{key}\r\n`],
  ["two lengths of one body", `${POST}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}`],
  ["a length that is none", `${POST}Content-Length: x\r\n\r\n{}`],
  ["an expectation", `${POST}Expect: the-unexpected\r\n\r\n`],
  ["a broken chunk", `${POST}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`],
  ["CONNECT", "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n"],
  ["an address without a path", "GET http://[::/ HTTP/1.1\r\n{key}\r\n"],
])(
  "§2.2: what never becomes a request is answered in the envelope: %s",
  async (_name, request, says = "") => {
    const { status, head, body } = parseRaw(await sendRaw(api.httpPort, request.replace("{key}", key())));
    expect(status).toBe(400);
    const lines = head.split("\r\n").slice(1);
    const headers = new Headers(lines.map((line) => line.split(/: (.*)/s, 2) as [string, string]));
    expect(headers.get("content-type")).toBe("application/json; charset=utf-8");
    expectGuarded((name) => headers.get(name), request);
    expect(body).toContain('{"Success":false,"Data":null,"Warnings":["');
    expect(body).toContain(says);
  },
);

test("a request without a Host header is served", async () => {
  const request = `GET /api/webhook/list HTTP/1.1\r\n${key().replace("Host: a\r\n", "")}\r\n`;
  expect(parseRaw(await sendRaw(api.httpPort, request)).status).toBe(200);
});

test("our own fault is 500 in the envelope, with a reference and nothing of the inside", async () => {
  const { db } = api.context;
  onTestFinished(() => db.raw("alter table webhooks rename column address to url"));
  await db.raw("alter table webhooks rename column url to address");
  const { status, envelope } = await api.rest("GET", "/api/webhook/list");
  expect(status).toBe(500);
  expect(envelope.Warnings[0]).toMatch(/^internal error; reference in the service's log: [0-9a-f-]{36}$/);
});
