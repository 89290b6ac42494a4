import { createClient } from "@connectrpc/connect";
import { createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { Agent } from "undici";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../../src/config/config.ts";
import { sendKey } from "../../support/clients.ts";
import { part } from "../../support/parts.ts";
import { sendRaw } from "../../support/raw-request.ts";
import { startTestApi, type TestApi, useApi } from "../../support/test-api.ts";

const root = await useApi();
const { folder: page } = await part("page");
const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8,::1/128" }).limits;

/** An API with the settings page, on the shared database. */
async function start(options: Parameters<typeof startTestApi>[0]): Promise<TestApi> {
  const api = await startTestApi({ databaseUrl: root.databaseUrl, page, ...options });
  afterAll(() => api.stop());
  return api;
}

const BROWSER = { Accept: "text/html" };
const JSON_TYPE = { "Content-Type": "application/json" };
const LIST = "/webhook.v1.WebhookService/ListWebhooks";

/** A request by bytes, since fetch normalizes paths; without what differs between two answers. */
async function ask(api: TestApi, path: string, headers: Record<string, string> = {}, body?: string) {
  const length: Record<string, string> = body === undefined ? {} : { "Content-Length": String(body.length) };
  const sent = {
    Host: "localhost",
    Connection: "close",
    "X-Service-Key": api.adminKey,
    ...headers,
    ...length,
  };
  const fields = Object.entries(sent).map(([name, value]) => `${name}: ${value}\r\n`);
  const method = body === undefined ? "GET" : "POST";
  const answer = await sendRaw(
    api.httpPort,
    `${method} ${path} HTTP/1.1\r\n${fields.join("")}\r\n${body ?? ""}`,
  );
  return answer.replace(/^Date: .*\r\n/im, "").replaceAll(/nonce(?:-|=")[\w+/=]{24}/g, "");
}
const statusOf = (answer: string) => Number(answer.split(" ", 2)[1]);

/** Requests without the prefix, and the status of each. */
const REQUESTS: [path: string, status: number, headers?: Record<string, string>, body?: string][] = [
  ["/", 200, BROWSER],
  ["/keys", 200, BROWSER],
  ["/webhooks", 200, BROWSER],
  ["/webhooks/7?state=failed", 200, BROWSER],
  ["/nowhere/at/all", 404, BROWSER],
  ["/nowhere", 404],
  ["/docs", 200],
  ["/docs/start.js", 200],
  ["/docs/swagger-ui.css", 200],
  ["/openapi.json", 200],
  ["/healthz", 200],
  ["/readyz", 200],
  ["/api/webhook/list", 200],
  ["/api/v2/webhook/list?x=1", 200],
  ["/api/webhook/list", 200, { "content-type": "application/grpc" }],
  ["/api/webhook/list/", 200],
  ["/api/nowhere", 404],
  ["/api/webhook", 400, JSON_TYPE, "{}"],
  [LIST, 200, JSON_TYPE, "{}"],
  ["/webhook.v1.WebhookService/Nothing", 404, JSON_TYPE, "{}"],
  ["/other.v1.Service/Method", 404, JSON_TYPE, "{}"],
];

describe.each(["/webhooks", "/hooks", "/tools/webhooks", "/api", "/api/webhook", "/keys/v1.x"])(
  "with BASE_PATH=%s",
  async (basePath) => {
    const api = await start({ basePath });

    // Whether "/api/nowhere" has lost the prefix "/api", nobody can say.
    const requests = REQUESTS.filter(([path]) => basePath !== "/api" || path !== "/api/nowhere");
    test.each(requests)(
      "%s has one answer, whether the proxy keeps the prefix or removes it",
      async (path, status, headers, body) => {
        const [removed, kept] = [
          await ask(api, path, headers, body),
          await ask(api, basePath + path, headers, body),
        ];
        expect(statusOf(removed)).toBe(status);
        expect(kept).toBe(removed);
      },
    );

    test("the prefix alone is the overview, and a longer name is another path", async () => {
      for (const path of [basePath, `${basePath}/`, `${basePath}?a=1`])
        expect(await ask(api, path, BROWSER)).toBe(await ask(api, "/", BROWSER));
      expect(statusOf(await ask(api, `${basePath}2/api/webhook/list`))).toBe(404);
    });

    test("everything that the pages load or link to has the prefix, and is served", async () => {
      for (const path of ["/", "/docs"]) {
        const text = await ask(api, basePath + path, BROWSER);
        const links = [...text.matchAll(/\s(?:src|href)="([^"]+)"/g)].map(([, link = ""]) => link);
        expect(links.length).toBeGreaterThan(2);
        for (const link of links) {
          expect(link.startsWith(`${basePath}/`), link).toBe(true);
          expect(statusOf(await ask(api, link)), link).toBe(200);
        }
      }
      expect(await ask(api, "/", BROWSER)).toContain(`<html data-base-path="${basePath}" lang="en">`);
      expect(await ask(api, `${basePath}/docs/start.js`)).toContain(`url: "${basePath}/openapi.json"`);
      const document = await fetch(`${api.url}${basePath}/openapi.json`);
      expect(((await document.json()) as { servers: unknown }).servers).toEqual([{ url: basePath }]);
      expect(await ask(api, `${basePath}/api/nowhere`)).toContain(`all paths: ${basePath}/openapi.json`);
    });

    test("gRPC-Web has the prefix, and gRPC keeps its paths", async () => {
      const transport = createGrpcWebTransport({
        baseUrl: api.url + basePath,
        httpVersion: "1.1",
        interceptors: [sendKey(() => api.adminKey)],
      });
      const { webhooks } = await createClient(WebhookService, transport).listWebhooks({});
      expect(webhooks).toEqual((await api.webhooks.listWebhooks({})).webhooks);
    });
  },
);

describe("X-Forwarded-Prefix, without BASE_PATH,", async () => {
  const behind = await start({ limits: { trustedProxies } });
  const fixed = await start({ basePath: "/fixed", limits: { trustedProxies } });
  const direct = await start({});

  test.each<[what: string, api: TestApi, header: string, prefix: string]>([
    ["of a trusted proxy is the prefix", behind, "/webhooks", "/webhooks"],
    ["of several proxies is joined", behind, "/tools/, /webhooks", "/tools/webhooks"],
    ["without a path is none", behind, "/", ""],
    ["that is no path is ignored", behind, '//evil.example"><script>', ""],
    ["of others is ignored", direct, "/webhooks", ""],
    ["has no effect with BASE_PATH", fixed, "/webhooks", "/fixed"],
  ])("%s", async (_what, api, header, prefix) => {
    const headers = { ...BROWSER, "X-Forwarded-Prefix": header };
    expect(await ask(api, "/docs", headers)).toContain(`src="${prefix}/docs/start.js"`);
    const overview = await ask(api, "/", headers);
    expect(overview).toContain(`href="${prefix}/assets/`);
    expect(overview.includes("data-base-path")).toBe(prefix !== "");
    expect(await ask(api, `${prefix}/openapi.json`, headers)).toContain(
      `"servers":[{"url":"${prefix || "/"}"}]`,
    );
  });
});

test("with TLS, REST has the prefix over HTTP/2 too, and gRPC keeps its paths on the same port", async () => {
  const authority = await createLocalAuthority();
  const tls = await authority.issue(["localhost"]);
  const secure = await start({ basePath: "/webhooks", tls });
  const dispatcher = new Agent({ allowH2: true, connect: { ca: authority.cert } });
  onTestFinished(() => dispatcher.destroy());
  for (const path of ["/webhooks/api/webhook/list", "/api/webhook/list", "/webhooks/docs", "/readyz"]) {
    const headers = { "x-service-key": secure.adminKey };
    const answer = await dispatcher.request({ origin: secure.url, path, method: "GET", headers });
    await answer.body.dump();
    expect([path, answer.statusCode]).toEqual([path, 200]);
  }
  const transport = createGrpcTransport({
    baseUrl: secure.url,
    nodeOptions: { ca: authority.cert },
    interceptors: [sendKey(() => secure.adminKey)],
  });
  await createClient(WebhookService, transport).listWebhooks({});
});

test("without either, the pages are as they were built", async () => {
  const plain = await start({});
  expect(await ask(plain, "/", BROWSER)).toMatch(/<html lang="en">/);
  expect(await ask(plain, "/webhooks/docs")).not.toContain("swagger");
  expect(statusOf(await ask(plain, "/webhooks/api/webhook/list"))).toBe(404);
});
