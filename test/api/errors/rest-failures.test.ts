import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { type RestRequest, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const FAILURE = { Success: false, Data: null, Warnings: [expect.any(String)] };

test("§7.4: an unknown path is 404 in the envelope, whatever the method, the key or the body", async () => {
  const bodies = [
    {},
    { raw: { body: "<a/>", type: "text/xml" } },
    { raw: { body: "{", type: "application/json" } },
    { raw: { body: "x".repeat(70_000), type: "application/json" } },
  ];
  const requests: [string, RestRequest][] = [
    ["GET", {}],
    ["OPTIONS", {}],
    ...["POST", "DELETE", "PATCH"].flatMap((method) =>
      bodies.map((body): [string, RestRequest] => [method, body]),
    ),
  ];
  const nearest: Record<string, string> = {
    GET: "GET /api/webhook/list",
    POST: "POST /api/webhook",
    DELETE: "DELETE /api/webhook",
  };
  for (const [method, body] of requests) {
    const { status, envelope } = await api.rest(method, "/api/webhooks", { ...body, key: null });
    expect(status).toBe(404);
    expect(envelope).toEqual({
      ...FAILURE,
      Warnings: [
        `no such path: /api/webhooks; did you mean ${nearest[method] ?? "POST or DELETE /api/webhook"}? all paths: /openapi.json`,
      ],
    });
  }
});

test.each([
  ["POST", "/api/webhook/list", "GET, HEAD"],
  ["GET", "/api/webhook", "POST, DELETE"],
  ["PUT", "/api/v1/webhook", "POST, DELETE"],
  ["OPTIONS", "/api/v2/webhook/list", "GET, HEAD"],
])("§7.2: %s %s is 400 with the methods that the path takes", async (method, path, allowed) => {
  const { status, headers, envelope } = await api.rest(method, path);
  expect(status).toBe(400);
  expect(headers.get("allow")).toBe(allowed);
  expect(envelope).toEqual({ ...FAILURE, Warnings: [`${path} does not take ${method}; use ${allowed}`] });
});

test("a trailing slash makes no difference", async () => {
  expect((await api.rest("GET", "/api/webhook/list/")).status).toBe(200);
});

test("HEAD answers as GET does, without a body", async () => {
  const { status, text } = await api.rest("HEAD", "/api/webhook/list");
  expect([status, text]).toEqual([200, ""]);
});

test("a path that is not validly encoded is told so in the envelope", async () => {
  const { status, envelope } = await api.rest("GET", "/api/%zz");
  expect([status, envelope]).toEqual([400, FAILURE]);
});

describe("§2.2: what never becomes a request is answered in the envelope:", () => {
  const key = () => `Host: a\r\nX-Service-Key: ${api.adminKey}\r\nConnection: close\r\n`;
  const cases: [string, () => string][] = [
    ["garbage", () => "this is not HTTP\r\n\r\n"],
    ["binary garbage", () => "\x16\x03\x01\x02\0\r\n\r\n"],
    ["an unknown method", () => `FETCH /api/webhook/list HTTP/1.1\r\n${key()}\r\n`],
    [
      "headers beyond 16 KiB",
      () => `GET /api/webhook/list HTTP/1.1\r\n${key()}X: ${"x".repeat(20_000)}\r\n\r\n`,
    ],
    [
      "an address beyond 16 KiB",
      () => `GET /api/webhook/list?${"x".repeat(20_000)} HTTP/1.1\r\n${key()}\r\n`,
    ],
    [
      "two lengths of one body",
      () => `POST /api/webhook HTTP/1.1\r\n${key()}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}`,
    ],
    ["a length that is none", () => `POST /api/webhook HTTP/1.1\r\n${key()}Content-Length: x\r\n\r\n{}`],
    ["an expectation", () => `POST /api/webhook HTTP/1.1\r\n${key()}Expect: the-unexpected\r\n\r\n`],
    [
      "a broken chunk",
      () =>
        `POST /api/webhook HTTP/1.1\r\n${key()}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`,
    ],
    ["CONNECT", () => "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n"],
    ["an address without a path", () => `GET http://[::/ HTTP/1.1\r\n${key()}\r\n`],
  ];
  test.each(cases)("%s", async (_name, request) => {
    const { status, head, body } = parseRaw(await sendRaw(api.httpPort, request()));
    expect(status).toBe(400);
    expect(head.toLowerCase()).toContain("content-type: application/json; charset=utf-8");
    expect(body).toContain('{"Success":false,"Data":null,"Warnings":["');
  });

  test("no Host header is no failure at all", async () => {
    const request = `GET /api/webhook/list HTTP/1.1\r\nX-Service-Key: ${api.adminKey}\r\nConnection: close\r\n\r\n`;
    expect(parseRaw(await sendRaw(api.httpPort, request)).status).toBe(200);
  });

  test("several keys in one request are one unknown key", async () => {
    const request = `GET /api/webhook/list HTTP/1.1\r\n${key()}X-Service-Key: ${api.adminKey}\r\n\r\n`;
    const { status, body } = parseRaw(await sendRaw(api.httpPort, request));
    expect(status).toBe(401);
    expect(JSON.parse(body)).toEqual(FAILURE);
  });
});

test("our own fault is 500 in the envelope, with a reference and nothing of the inside", async () => {
  const broken = await startTestApi();
  try {
    await broken.context.db.raw("alter table webhooks rename column url to address");
    const { status, envelope } = await broken.rest("GET", "/api/webhook/list");
    expect(status).toBe(500);
    expect(envelope.Warnings[0]).toMatch(/^internal error; reference in the service's log: [0-9a-f-]{36}$/);
  } finally {
    await broken.stop();
  }
});
