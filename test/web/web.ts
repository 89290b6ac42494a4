import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, expect, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { part } from "../support/parts.ts";
import { PATIENCE_MS } from "../support/patience.ts";
import { startTestApi, type TestApi } from "../support/test-api.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";
import { theBrowser, WINDOW } from "./browser.ts";
import { CALLS } from "./journeys/calls.ts";
import { watch } from "./watched-page.ts";

/** How a visit begins. */
export interface VisitOptions {
  /** Where; the overview unless told. */
  path?: string;
  /** Secret of the key that is signed in with, the administrator's unless told; null: nobody is signed in. */
  key?: string | null;
}

/** The settings page of a running service, and the browser to look at it. */
export interface Web {
  browser: Browser;
  /** The methods that the service has answered. */
  calls: ReadonlySet<string>;
  /**
   * Opens the settings page as in a new browser, does what the test does, and closes it, however that ends. Fails the
   * test too when the page had an error on its console, violated its policy, or asked for anything elsewhere.
   */
  visit(options: VisitOptions, test: (page: Page, context: BrowserContext) => Promise<void>): Promise<void>;
}

async function webOf(service: { url: string; readonly adminKey: string }): Promise<Web> {
  const browser = await theBrowser();
  const calls = new Set<string>();
  // Loading the page in another context compiles it again, and costs twice as much.
  const context = await browser.newContext({ ...WINDOW, baseURL: service.url });
  context.setDefaultTimeout(PATIENCE_MS);
  afterAll(() => context.close());
  return {
    browser,
    calls,
    async visit({ path = "/", key = service.adminKey }, journey) {
      const page = await context.newPage();
      try {
        await forget(page, service.url);
        if (key !== null) await signIn(context, service.url, key);
        const watched = await watch(page, service.url, calls);
        await page.goto(path);
        await journey(page, context);
        watched.expectNothing();
      } finally {
        await context.setOffline(false);
        for (const each of context.pages()) await each.close();
      }
    },
  };
}

/** Removes what an earlier visit has left in the browser; files of the page stay in its cache. */
async function forget(page: Page, origin: string): Promise<void> {
  await page.context().clearCookies();
  const session = await page.context().newCDPSession(page);
  await session.send("Storage.clearDataForOrigin", { origin, storageTypes: "local_storage" });
  await session.detach();
}

/**
 * The last test of a file of journeys.
 *
 * @param file the journeys' name in `CALLS`
 */
export function expectCalls(file: keyof typeof CALLS, { calls }: Web): void {
  test("the calls on which component tests rely are answered by the real service", () => {
    expect([...calls]).toEqual(expect.arrayContaining(CALLS[file]));
  });
}

/** Proxies of this machine are trusted, and an address may send three wrong keys in a minute. */
const SETTINGS = { TRUST_PROXY: "127.0.0.0/8,::1/128", WRONG_KEYS_PER_MINUTE: "3" };
let shared: Promise<TestApi> | undefined;

/** The API and its settings page, which the files of this worker share, with empty tables. */
export async function sharedWeb(): Promise<Web & { api: TestApi }> {
  shared ??= part("page").then(({ folder }) =>
    startTestApi({ page: folder, limits: readConfig(SETTINGS).limits }),
  );
  const api = await shared;
  await api.empty();
  return { api, ...(await webOf(api)) };
}

/**
 * Starts a whole service, which ends with the file. What is published is sent at once, unless the settings say when it is.
 *
 * @param settings environment variables over the short times of tests
 */
export async function startWeb(
  settings: Record<string, string> = {},
): Promise<Web & { service: TestService }> {
  await part("page");
  const pace = settings.DISPATCH_INTERVAL === undefined ? WOKEN : {};
  const service = await startTestService({ ...pace, ...settings });
  afterAll(service.stop);
  return { service, ...(await webOf(service)) };
}

/** Signs a window in as the page does, without its form. */
async function signIn(context: BrowserContext, url: string, key: string): Promise<void> {
  const answer = await context.request.post(`${url}/webhook.v1.SessionService/SignIn`, {
    headers: { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-origin" },
    data: { apiKey: key },
  });
  if (!answer.ok()) throw new Error(`signing in was answered ${answer.status()}: ${await answer.text()}`);
}
