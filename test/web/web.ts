import type { Browser, BrowserContext, Page } from "playwright-core";
import { part } from "../support/parts.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";
import { theBrowser, WINDOW } from "./browser.ts";
import { watch } from "./watched-page.ts";

/** Sooner than the test ends, so that a failure tells what was waited for. */
const PATIENCE_MS = 20_000;

/** How a visit begins. */
export interface VisitOptions {
  /** Where; the overview unless told. */
  path?: string;
  /** Secret of the key that is signed in with, the administrator's unless told; null: nobody is signed in. */
  key?: string | null;
  /** Whether the test moves the page's clock, by `page.clock`. */
  clock?: boolean;
}

/** A whole service of a test file's own, and the browser to look at it. */
export interface Web {
  service: TestService;
  browser: Browser;
  /**
   * Opens the settings page in a window of its own, does what the test does, and closes it, however that ends. Fails
   * the test too when the page had an error on its console, violated its policy, or asked for anything elsewhere.
   */
  visit(options: VisitOptions, test: (page: Page, context: BrowserContext) => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts the service. What is published is sent at once, unless the settings say when it is.
 *
 * @param settings environment variables over the short times of tests
 */
export async function startWeb(settings: Record<string, string> = {}): Promise<Web> {
  await part("page");
  const browser = await theBrowser();
  const pace = settings.DISPATCH_INTERVAL === undefined ? WOKEN : {};
  const service = await startTestService({ ...pace, ...settings });
  return {
    service,
    browser,
    async visit({ path = "/", key = service.adminKey, clock = false }, test) {
      const context = await browser.newContext({ ...WINDOW, baseURL: service.url });
      context.setDefaultTimeout(PATIENCE_MS);
      try {
        if (key !== null) await signIn(context, service.url, key);
        const page = await context.newPage();
        const watched = await watch(page, new URL(service.url).origin);
        if (clock) await page.clock.install();
        await page.goto(path);
        await test(page, context);
        watched.expectNothing();
      } finally {
        await context.close();
      }
    },
    stop: service.stop,
  };
}

/** Signs a window in as the page does, without its form. */
export async function signIn(context: BrowserContext, url: string, key: string): Promise<void> {
  const answer = await context.request.post(`${url}/webhook.v1.SessionService/SignIn`, {
    headers: { "X-Settings-Page": "1", "Sec-Fetch-Site": "same-origin" },
    data: { apiKey: key },
  });
  if (!answer.ok()) throw new Error(`signing in was answered ${answer.status()}: ${await answer.text()}`);
}
