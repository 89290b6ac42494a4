import type { LookupFunction } from "node:net";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { Page } from "playwright-core";
import { Agent } from "undici";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { sendKey } from "../support/clients.ts";
import { part } from "../support/parts.ts";
import { PATIENCE_MS } from "../support/patience.ts";
import { startTestApi, useApi } from "../support/test-api.ts";
import { OTHER_HOST, theBrowser, WINDOW } from "../web/browser.ts";
import { watch } from "../web/watched-page.ts";
import { describeWith } from "./programs.ts";
import {
  type DocumentedProxy,
  PROXIES,
  type PrefixMode,
  type ProxyName,
  startDocumentedProxy,
} from "./proxies.ts";

const shared = await useApi();
const { folder: page } = await part("page");
const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.1/32" }).limits;
/** As docs/proxies.md sets it up. A proxy that buffers would show the overview after its only message's stream ends. */
const api = await startTestApi({
  databaseUrl: shared.databaseUrl,
  basePath: "/webhooks",
  page,
  limits: { trustedProxies },
  overviewSilenceMs: 3_600_000,
});
afterAll(() => api.stop());

async function start(...args: Parameters<typeof startDocumentedProxy>): Promise<DocumentedProxy> {
  const proxy = await startDocumentedProxy(...args);
  onTestFinished(proxy.stop);
  return proxy;
}

const toThisMachine: LookupFunction = (_host, { all }, done) =>
  all ? done(null, [{ address: "127.0.0.1", family: 4 }]) : done(null, "127.0.0.1", 4);

/** Opens a window of its own, and expects that the page over TLS does nothing that it must not. */
async function visit(origin: string, journey: (page: Page) => Promise<void>): Promise<void> {
  const browser = await theBrowser();
  const context = await browser.newContext({ ...WINDOW, baseURL: origin, ignoreHTTPSErrors: true });
  try {
    context.setDefaultTimeout(PATIENCE_MS);
    const opened = await context.newPage();
    const watched = await watch(opened, origin, new Set());
    await journey(opened);
    // Over plain HTTP, Chromium warns of each header for TLS.
    if (origin.startsWith("https:")) watched.expectNothing();
  } finally {
    await context.close();
  }
}

async function signIn(page: Page): Promise<void> {
  await page.getByLabel("API key", { exact: true }).fill(api.adminKey);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}
const heading = (page: Page, name: string) => page.getByRole("heading", { name, level: 1 });

describe.each(PROXIES)("behind %s", (name: ProxyName) => {
  describeWith([name], "as docs/proxies.md configures it", () => {
    test.each<PrefixMode>(["keeps", "removes"])(
      "which %s the prefix, people sign in, follow and reload links, change something, and try the API at /docs",
      async (mode) => {
        const proxy = await start(name, mode, api);
        const origin = `https://${OTHER_HOST}:${proxy.httpsPort}`;
        const id = await api.register();
        await visit(origin, async (page) => {
          await page.goto("/webhooks");
          await signIn(page);
          await page.getByText(`${origin}/webhooks/webhook.v1.EventService/PublishEvent`).waitFor();
          expect(page.url()).toBe(`${origin}/webhooks/`);
          expect(await page.context().cookies()).toMatchObject([
            { name: "__Secure-webhook_session", path: "/webhooks", secure: true, httpOnly: true },
          ]);
          await page.getByRole("link", { name: "Webhooks", exact: true }).click();
          await page.locator(`a[href="/webhooks/webhooks/${id}"]`).first().click();
          await page.waitForURL(`${origin}/webhooks/webhooks/${id}`);
          await page.reload();
          await page.getByRole("button", { name: "Delete", exact: true }).click();
          await page.getByRole("button", { name: "Delete webhook", exact: true }).click();
          await page.getByText("The webhook is deleted").waitFor();
          const { webhooks } = await api.webhooks.listWebhooks({});
          expect(webhooks.filter((webhook) => webhook.id === id)).toEqual([]);
          await page.goto("/webhooks/nowhere");
          await heading(page, "Page not found").waitFor();

          await page.goto("/webhooks/docs");
          await page.getByRole("button", { name: "Authorize" }).first().click();
          await page.getByRole("textbox").fill(api.adminKey);
          await page.getByRole("button", { name: "Apply credentials" }).click();
          await page.getByRole("button", { name: "Close" }).click();
          await page
            .getByRole("button", { name: /\/api\/webhook\/list/ })
            .first()
            .click();
          await page.getByRole("button", { name: "Try it out" }).click();
          const [answer] = await Promise.all([
            page.waitForResponse(`${origin}/webhooks/api/webhook/list`),
            page.getByRole("button", { name: "Execute" }).click(),
          ]);
          expect(answer.status()).toBe(200);
        });
      },
    );

    test("REST has the prefix, and gRPC its own port", async () => {
      const proxy = await start(name, "removes", api);
      const options = { ca: proxy.ca, lookup: toThisMachine };
      const dispatcher = new Agent({ connect: options });
      onTestFinished(() => dispatcher.close());
      const rest = await dispatcher.request({
        origin: `https://${OTHER_HOST}:${proxy.httpsPort}`,
        path: "/webhooks/api/webhook/list",
        method: "GET",
        headers: { "x-service-key": api.adminKey },
      });
      expect([rest.statusCode, await rest.body.json()]).toMatchObject([200, { Success: true }]);
      const transport = createGrpcTransport({
        baseUrl: `https://${OTHER_HOST}:${proxy.grpcsPort}`,
        nodeOptions: options,
        interceptors: [sendKey(() => api.adminKey)],
      });
      await createClient(WebhookService, transport).listWebhooks({});
    });
  });
});

describeWith(["nginx"], "behind an nginx that changes Host, over plain HTTP from another machine,", () => {
  const CHANGED = ["proxy_set_header Host $http_host", "proxy_set_header Host backend.internal"] as const;
  /** Plain HTTP, and another Host; without the lines that match. */
  const plain =
    (without = /(?!)/) =>
    (file: string) =>
      file
        .replace("listen 443 ssl http2;", "listen 443 ;")
        .replace(...CHANGED)
        .replace(without, "");

  test("X-Forwarded-Host signs people in", async () => {
    const proxy = await start("nginx", "removes", api, plain());
    await visit(`http://${OTHER_HOST}:${proxy.httpsPort}`, async (page) => {
      await page.goto("/webhooks/keys");
      await signIn(page);
      await page.getByRole("row", { name: /Signed in/ }).waitFor();
    });
  });

  test("X-Forwarded-Prefix signs people in without BASE_PATH", async () => {
    const bare = await startTestApi({ databaseUrl: shared.databaseUrl, page, limits: { trustedProxies } });
    onTestFinished(() => bare.stop());
    const proxy = await start("nginx", "removes", bare, (file) =>
      plain()(file).replace('X-Forwarded-Prefix ""', "X-Forwarded-Prefix /webhooks"),
    );
    await visit(`http://${OTHER_HOST}:${proxy.httpsPort}`, async (page) => {
      await page.goto("/webhooks/keys");
      await signIn(page);
      await page.getByRole("row", { name: /Signed in/ }).waitFor();
      expect(await page.context().cookies()).toMatchObject([{ name: "webhook_session", path: "/webhooks" }]);
    });
  });

  test.each<[what: string, change: (file: string) => string, says: string]>([
    [
      "without X-Forwarded-Host, the page names it",
      plain(/.*X-Forwarded-Host.*\n/),
      "Host is backend.internal, but the browser opened",
    ],
    [
      "with another scheme in X-Forwarded-Proto, the page names it",
      (file) => plain()(file).replace("X-Forwarded-Proto $scheme", "X-Forwarded-Proto https"),
      "X-Forwarded-Proto is https, but the browser opened",
    ],
  ])("%s", async (_what, change, says) => {
    const proxy = await start("nginx", "removes", api, change);
    await visit(`http://${OTHER_HOST}:${proxy.httpsPort}`, async (page) => {
      await page.goto("/webhooks/");
      await page.getByText("A proxy hides this page’s address").waitFor();
      await page.getByText(says).waitFor();
    });
  });

  test("with another prefix than BASE_PATH, the page names it", async () => {
    const proxy = await start("nginx", "removes", api, (file) =>
      plain()(file).replace("location /webhooks/", "location /hooks/"),
    );
    await visit(`http://${OTHER_HOST}:${proxy.httpsPort}`, async (page) => {
      await page.goto("/hooks/keys");
      await page.getByText("set BASE_PATH of the service to that prefix; it is now /webhooks").waitFor();
    });
  });
});
