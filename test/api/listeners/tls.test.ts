import { once } from "node:events";
import * as http2 from "node:http2";
import { text } from "node:stream/consumers";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { Code, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { Agent, type Dispatcher } from "undici";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { refused } from "../../support/grpc-calls.ts";
import { sendRaw } from "../../support/raw-request.ts";
import { startTestApi } from "../../support/test-api.ts";
import { expectGuarded } from "./guarded-answers.ts";

const authority = await createLocalAuthority();
const ca = authority.cert;
const api = await startTestApi({
  tls: await authority.issue(["localhost", "127.0.0.1"]),
  limits: { wrongKeysPerMinute: 4, requestIdleMs: 1_000 },
});
afterAll(() => api.stop());

const VERSIONS: [string, Agent][] = [
  ["HTTP/1.1", new Agent({ connect: { ca }, allowH2: false })],
  ["HTTP/2", new Agent({ connect: { ca }, allowH2: true })],
];
afterAll(() => Promise.all(VERSIONS.map(([, agent]) => agent.close())));
const nodeOptions = { ca };
const TRANSPORTS: [string, Transport][] = [
  ["gRPC", createGrpcTransport({ baseUrl: api.url, nodeOptions })],
  ["Connect over HTTP/2", createConnectTransport({ baseUrl: api.url, httpVersion: "2", nodeOptions })],
  ["Connect over HTTP/1.1", createConnectTransport({ baseUrl: api.url, httpVersion: "1.1", nodeOptions })],
];

/** Sends a request with the administrator's key, or another. */
const send = (
  agent: Agent,
  path: string,
  request: Partial<Dispatcher.RequestOptions> = {},
  key = api.adminKey,
) => {
  const headers = { "x-service-key": key, "content-type": "application/json" };
  return agent.request({ origin: api.url, method: "GET", path, headers, ...request });
};

describe("with a certificate one port carries", () => {
  test("all, at an address with https", () => {
    expect([api.grpcPort, api.url]).toEqual([null, `https://localhost:${api.httpPort}`]);
  });

  test.each(VERSIONS)(
    "REST over %s, and browsers are told to use HTTPS from then on",
    async (_version, agent) => {
      const url = "https://receiver.example/tls";
      const body = JSON.stringify({ process: 1, url });
      const made = await send(agent, "/api/webhook", { method: "POST", body });
      expect([made.statusCode, await made.body.json()]).toMatchObject([200, { Data: { Url: url } }]);
      expect(made.headers["strict-transport-security"]).toBe("max-age=31536000");
      expectGuarded((name) => String(made.headers[name]), "over TLS");
      const nowhere = await send(agent, "/nope");
      expect([nowhere.statusCode, await nowhere.body.json()]).toMatchObject([404, { Success: false }]);
    },
  );

  test.each(TRANSPORTS)("%s", async (_name, transport) => {
    const webhooks = createClient(WebhookService, transport);
    const headers = { "X-Service-Key": api.adminKey };
    expect((await webhooks.listWebhooks({}, { headers })).webhooks).toHaveLength(1);
    expect((await refused(webhooks.listWebhooks({}))).code).toBe(Code.Unauthenticated);
  });

  test("nothing without TLS", async () => {
    const plain = await sendRaw(api.httpPort, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").catch(() => "");
    expect(plain).not.toContain("200 OK");
  });
});

test.each(VERSIONS)(
  "a session over %s has a cookie that browsers send over TLS only",
  async (_version, agent) => {
    const page = { "x-settings-page": "1", "sec-fetch-site": "same-origin" };
    const headers = { "content-type": "application/json", ...page };
    const body = JSON.stringify({ apiKey: api.adminKey });
    const signIn = { method: "POST" as const, headers, body };
    const answer = await send(agent, "/webhook.v1.SessionService/SignIn", signIn);
    await answer.body.dump();
    expect(String(answer.headers["set-cookie"])).toMatch(/^__Host-.*; Secure/);
  },
);

test.each([
  ["/api/webhook", 400, "the request did not arrive within 1 s; send it again"],
  ["/api/nope", 404, "no such path"],
])(
  "a request over HTTP/2 of which a byte comes now and then is answered by %s, and then ended",
  async (path, status, says) => {
    const session = http2.connect(api.url, { ca }).on("error", () => {});
    onTestFinished(() => session.destroy());
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/json",
      "x-service-key": api.adminKey,
    });
    const timer = setInterval(() => stream.write(Buffer.alloc(1)), 100);
    stream.on("error", () => {}).once("close", () => clearInterval(timer));
    const [answer] = await once(stream, "response");
    const [warning] = JSON.parse(await text(stream)).Warnings;
    expect([answer[":status"], warning]).toEqual([status, expect.stringContaining(says)]);
  },
);

test("wrong keys of an address count together, over HTTP/1.1, HTTP/2 and gRPC", async () => {
  const statuses: number[] = [];
  for (const [, agent] of [...VERSIONS, ...VERSIONS, ...VERSIONS]) {
    const { statusCode, body } = await send(agent, "/api/webhook/list", {}, "wrong");
    await body.dump();
    statuses.push(statusCode);
  }
  expect(statuses).toEqual([401, 401, 401, 401, 429, 429]);
  const headers = { "X-Service-Key": "x" };
  for (const [, transport] of TRANSPORTS) {
    const call = createClient(WebhookService, transport).listWebhooks({}, { headers });
    expect((await refused(call)).code).toBe(Code.ResourceExhausted);
  }
});

describe("a handshake", () => {
  /** The cipher suite that a client and the service agree on, or the reason why they do not. */
  async function handshake(options: ConnectionOptions): Promise<string> {
    const address = { port: api.httpPort, host: "127.0.0.1", servername: "localhost" };
    const socket = connectTls({ ...address, ca, ...options });
    try {
      await once(socket, "secureConnect");
      return `${socket.getProtocol()} ${socket.getCipher().standardName}`;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? String(error);
    } finally {
      socket.destroy();
    }
  }
  const version = (name: "TLSv1" | "TLSv1.1" | "TLSv1.2", ciphers: string): ConnectionOptions => ({
    minVersion: name,
    maxVersion: name,
    ciphers,
  });
  const CHACHA = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
  const AES = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256";
  const CBC = "ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA";
  const REFUSED = /^ERR_SSL_|^ECONNRESET$/;

  test.each([
    ["takes TLS 1.3", {}, /^TLSv1\.3 TLS_AES_128_GCM_SHA256$/],
    [
      "takes TLS 1.2, whose suite the service chooses",
      version("TLSv1.2", `${CHACHA}:${AES}`),
      /^TLSv1\.2 TLS_ECDHE_(ECDSA|RSA)_WITH_AES_128_GCM_SHA256$/,
    ],
    ["takes TLS 1.2 with ChaCha20", version("TLSv1.2", CHACHA), /CHACHA20_POLY1305/],
    ["refuses TLS 1.1", version("TLSv1.1", "DEFAULT@SECLEVEL=0"), REFUSED],
    ["refuses TLS 1.0", version("TLSv1", "DEFAULT@SECLEVEL=0"), REFUSED],
    ["refuses CBC", version("TLSv1.2", CBC), REFUSED],
    ["refuses CCM", version("TLSv1.2", "ECDHE-ECDSA-AES128-CCM8:ECDHE-ECDSA-AES128-CCM"), REFUSED],
    ["refuses keys without forward secrecy", version("TLSv1.2", "AES128-GCM-SHA256"), REFUSED],
    ["refuses finite-field Diffie-Hellman", version("TLSv1.2", "DHE-RSA-AES128-GCM-SHA256"), REFUSED],
  ])("%s", async (_what, options, agreed) => {
    expect(await handshake(options)).toMatch(agreed);
  });
});
