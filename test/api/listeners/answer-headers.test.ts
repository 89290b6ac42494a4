import { once } from "node:events";
import { connect as connectHttp2, type IncomingHttpHeaders } from "node:http2";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { createClient, type Transport } from "@connectrpc/connect";
import { Agent } from "undici";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { PROTOCOLS } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { sendRaw } from "../../support/raw-request.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

/** Reads a header of an answer by its name in lower case. */
type Header = (name: string) => string | null | undefined;

function expectGuarded(header: Header, about: string): void {
  expect(header("cache-control"), about).toBe("no-store");
  expect(header("x-content-type-options"), about).toBe("nosniff");
  const vary = header("vary")?.toLowerCase().split(/, */);
  for (const name of ["x-service-key", "cookie", "origin", "accept-encoding"])
    expect(vary, about).toContain(name);
}

const LIST = "/webhook.v1.WebhookService/ListWebhooks";
const GET_LIST = `${LIST}?connect=v1&encoding=json&message=%7B%7D`;

describe("no answer may be stored, shown to another caller or taken for another type:", () => {
  const json = { "Content-Type": "application/json" };
  const cases: [what: string, status: number, path: string, request: RequestInit & { key?: boolean }][] = [
    ["REST", 200, "/api/webhook/list", { key: true }],
    ["REST, packed", 200, "/api/webhook/processes", { key: true, headers: { "Accept-Encoding": "gzip" } }],
    ["REST without a key", 401, "/api/webhook/list", {}],
    ["REST with a body that cannot be read", 400, "/api/webhook", { method: "POST", key: true, body: "{" }],
    ["REST with a wrong method", 400, "/api/webhook/list", { method: "POST", key: true }],
    ["REST at a path that is not validly encoded", 400, "/api/%zz", {}],
    ["an unknown path", 404, "/nowhere", {}],
    ["a page's address without a page", 503, "/", { headers: { Accept: "text/html" } }],
    ["Connect", 200, LIST, { method: "POST", key: true, headers: json, body: "{}" }],
    ["Connect by GET", 200, GET_LIST, { key: true }],
    ["Connect without a key", 401, LIST, { method: "POST", headers: json, body: "{}" }],
    [
      "Connect with a field that there is not",
      400,
      LIST,
      { method: "POST", key: true, headers: json, body: '{"a":1}' },
    ],
    ["Connect with an unknown content type", 415, LIST, { method: "POST", key: true, body: "x" }],
    ["Connect with a wrong method", 405, LIST, { method: "PUT", key: true, body: "x" }],
    [
      "an unknown method",
      404,
      "/webhook.v1.WebhookService/No",
      { method: "POST", headers: json, body: "{}" },
    ],
    ["/healthz", 200, "/healthz", {}],
    ["/readyz", 200, "/readyz", {}],
  ];
  test.each(cases)("%s", async (what, status, path, { key, headers, ...request }) => {
    const sent = new Headers(headers);
    if (key) sent.set("X-Service-Key", api.adminKey);
    const answer = await fetch(`${api.url}${path}`, { ...request, headers: sent });
    expect(answer.status).toBe(status);
    expectGuarded((name) => answer.headers.get(name), what);
    await answer.body?.cancel();
  });

  const raw: [string, string][] = [
    ["what is not HTTP", "this is not HTTP\r\n\r\n"],
    ["an expectation", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: the-unexpected\r\n\r\n"],
    ["CONNECT", "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n"],
    ["too many headers", `GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}\r\n\r\n`],
  ];
  test.each(raw)("%s", async (what, request) => {
    const [head = ""] = (await sendRaw(api.httpPort, request)).split("\r\n\r\n");
    const headers = new Headers(
      head
        .split("\r\n")
        .slice(1)
        .map((line) => line.split(/: (.*)/s, 2) as [string, string]),
    );
    expectGuarded((name) => headers.get(name), what);
  });

  test.each(PROTOCOLS)(
    "%s, answers and refusals",
    async (_name, transport: (api: TestApi, key?: string) => Transport) => {
      let headers = new Headers();
      const onHeader = (got: Headers) => {
        headers = got;
      };
      await createClient(WebhookService, transport(api)).listWebhooks({}, { onHeader });
      expectGuarded((name) => headers.get(name), "an answer");
      const refused = await failure(createClient(WebhookService, transport(api, "wrong")).listWebhooks({}));
      expectGuarded((name) => refused?.metadata.get(name), "a refusal");
      const unread = await failure(createClient(SessionService, transport(api)).getSession({}));
      expectGuarded((name) => unread?.metadata.get(name), "a refusal without a session");
    },
  );

  test("an unknown method of gRPC", async () => {
    const session = connectHttp2(api.grpcUrl);
    onTestFinished(() => session.destroy());
    const stream = session.request({
      ":method": "POST",
      ":path": "/no.such.Service/Method",
      "content-type": "application/grpc",
    });
    const [headers] = (await once(stream.end(), "response")) as [IncomingHttpHeaders];
    expectGuarded((name) => headers[name] as string, "an unknown method");
  });
});

describe("with TLS of its own the service", () => {
  let secure: TestApi;
  let ca: string;
  beforeAll(async () => {
    const authority = await createLocalAuthority();
    ca = authority.cert;
    secure = await startTestApi({ tls: await authority.issue(["localhost"]) });
  });
  afterAll(() => secure.stop());

  test("has browsers use HTTPS from then on, over HTTP/1.1 and HTTP/2, and says nothing of it without TLS", async () => {
    for (const allowH2 of [false, true]) {
      const dispatcher = new Agent({ connect: { ca }, allowH2 });
      const answer = await dispatcher.request({
        origin: secure.url,
        path: "/api/webhook/list",
        method: "GET",
      });
      await answer.body.dump();
      expect(answer.statusCode).toBe(401);
      expect(answer.headers["strict-transport-security"]).toBe("max-age=31536000");
      expectGuarded((name) => String(answer.headers[name]), "over TLS");
      await dispatcher.close();
    }
    const plain = await fetch(`${api.url}/healthz`);
    expect(plain.headers.has("strict-transport-security")).toBe(false);
  });

  /** The cipher suite that a client and the service agree on, or the reason why they do not. */
  async function handshake(options: ConnectionOptions): Promise<string> {
    const socket = connectTls({
      port: secure.httpPort,
      host: "127.0.0.1",
      servername: "localhost",
      ca,
      ...options,
    });
    try {
      await once(socket, "secureConnect");
      return `${socket.getProtocol()} ${socket.getCipher().standardName}`;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? String(error);
    } finally {
      socket.destroy();
    }
  }
  const V12: ConnectionOptions = { minVersion: "TLSv1.2", maxVersion: "TLSv1.2" };

  test.each([
    ["TLS 1.3", {}, "TLSv1.3 TLS_AES_128_GCM_SHA256"],
    [
      "TLS 1.2, whose suite the service chooses",
      {
        ...V12,
        ciphers:
          "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256",
      },
      /^TLSv1\.2 TLS_ECDHE_(ECDSA|RSA)_WITH_AES_128_GCM_SHA256$/,
    ],
    [
      "TLS 1.2 with ChaCha20",
      { ...V12, ciphers: "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305" },
      /CHACHA20_POLY1305/,
    ],
  ] as [string, ConnectionOptions, string | RegExp][])("takes %s", async (_what, options, agreed) => {
    expect(await handshake(options)).toMatch(agreed);
  });

  test.each([
    ["TLS 1.1", { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" }],
    ["TLS 1.0", { minVersion: "TLSv1", maxVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" }],
    [
      "CBC",
      {
        ...V12,
        ciphers:
          "ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA",
      },
    ],
    ["keys without forward secrecy", { ...V12, ciphers: "AES128-GCM-SHA256:AES256-GCM-SHA384" }],
    ["finite-field Diffie-Hellman", { ...V12, ciphers: "DHE-RSA-AES128-GCM-SHA256" }],
    ["CCM", { ...V12, ciphers: "ECDHE-ECDSA-AES128-CCM8:ECDHE-ECDSA-AES128-CCM" }],
  ] as [string, ConnectionOptions][])("refuses %s", async (_what, options) => {
    expect(await handshake(options)).toMatch(/^ERR_SSL_|^ECONNRESET$/);
  });
});
