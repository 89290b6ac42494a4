import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, expect, test } from "vitest";
import { part } from "../support/parts.ts";
import { PATIENCE_MS } from "../support/patience.ts";
import { startTestApi, type TestApi } from "../support/test-api.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";
import { theBrowser, WINDOW } from "./browser.ts";
import { CALLS } from "./journeys/calls.ts";
import { type Watch, watch } from "./watched-page.ts";

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
   * Opens the settings page, or goes on with the one that the last visit has left, and does what the test does. Fails the test too
   * when the page had an error on its console, violated its policy, or asked for anything elsewhere.
   */
  visit(options: VisitOptions, test: (page: Page, context: BrowserContext) => Promise<void>): Promise<void>;
}

/** A path without a page. */
const NOWHERE = "/nowhere";

/** Follows a link that is not on the page, as the page itself would: without loading anything. */
const follow = (page: Page, path: string) =>
  page.evaluate(
    `history.pushState(null, "", ${JSON.stringify(path)}); dispatchEvent(new PopStateEvent("popstate"));`,
  );

/** Does what the menu of a webhook's page offers. */
export async function act(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name }).click();
}

/** Closes the messages on the page, and counts them. Run in the page. */
const CLOSE_MESSAGES = `(() => {
  const buttons = document.querySelectorAll(".mantine-Notification-root button");
  for (const button of buttons) button.click();
  return buttons.length;
})()`;

/** Leaves the page that is open, with its dialogs and messages, for another one. */
async function leaveFor(page: Page, path: string): Promise<void> {
  const nothing = page.getByRole("heading", { name: "Page not found" });
  await follow(page, NOWHERE);
  await nothing.waitFor();
  await expect.poll(() => page.evaluate(CLOSE_MESSAGES)).toBe(0);
  if (path === NOWHERE) return;
  await follow(page, path);
  await nothing.waitFor({ state: "detached" });
}

async function webOf(service: { url: string; readonly adminKey: string }): Promise<Web> {
  const browser = await theBrowser();
  const calls = new Set<string>();
  // Loading the page in another context compiles it again, and costs twice as much.
  const context = await browser.newContext({ ...WINDOW, baseURL: service.url });
  context.setDefaultTimeout(PATIENCE_MS);
  afterAll(() => context.close());
  /** The page of the administrator, which costs far more to load than to use. */
  let kept: { page: Page; watched: Watch } | undefined;

  async function load(path: string, key: string | null) {
    const page = await context.newPage();
    await forget(page, service.url);
    if (key !== null) await signIn(context, service.url, key);
    const watched = await watch(page, service.url, calls);
    await page.goto(path);
    return { page, watched };
  }

  return {
    browser,
    calls,
    async visit({ path = "/", key = service.adminKey }, journey) {
      const isKept = key === service.adminKey;
      const visited = isKept ? kept : undefined;
      kept = undefined;
      if (visited) await leaveFor(visited.page, path);
      else for (const each of context.pages()) await each.close();
      const { page, watched } = visited ?? (await load(path, key));
      await journey(page, context);
      watched.expectNothing();
      await page.unrouteAll();
      if (isKept) kept = { page, watched };
    },
  };
}

/** Removes what an earlier visit has left in the browser; files of the page stay in its cache. */
async function forget(page: Page, origin: string): Promise<void> {
  await page.context().setOffline(false);
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

let shared: Promise<TestApi> | undefined;

/** The API with the settings page, which the files of this worker share. */
export function sharedApi(): Promise<TestApi> {
  shared ??= part("page").then(({ folder }) => startTestApi({ page: folder }));
  return shared;
}

/** The settings page of the shared API, with empty tables. */
export async function sharedWeb(): Promise<Web & { api: TestApi }> {
  const api = await sharedApi();
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
