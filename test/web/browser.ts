import { type Browser, type BrowserContextOptions, chromium } from "playwright-core";
import { part } from "../support/parts.ts";

/** A name by which the browser reaches this machine without taking it for its own. */
export const OTHER_HOST = "hooks.example";

/** Nothing that the browser asks for by itself: what leaves it is the page's doing. */
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--font-render-hinting=none",
  "--disable-gpu",
  `--host-resolver-rules=MAP ${OTHER_HOST} 127.0.0.1`,
];

/** Sizes of a desk's screen and of a phone's, in CSS pixels. */
export const SCREENS = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } } as const;

/** A window as tests open it: without movement, in English, in a time zone that is not UTC. */
export const WINDOW: BrowserContextOptions = {
  viewport: SCREENS.wide,
  reducedMotion: "reduce",
  colorScheme: "light",
  locale: "en-GB",
  timezoneId: "Europe/Berlin",
};

let running: Promise<Browser> | undefined;

/**
 * The Chromium of this process's tests, which ends with the process. Tests keep apart by windows of their own.
 *
 * @throws Error saying why there is none
 */
export async function theBrowser(): Promise<Browser> {
  running ??= start();
  const browser = await running;
  if (browser.isConnected()) return browser;
  // It crashed under another file's test, which has failed for it.
  running = start();
  return running;
}

async function start(): Promise<Browser> {
  const found = await part("chromium");
  if ("missing" in found) throw new Error(`no browser: ${found.missing}`);
  try {
    return await chromium.launch({
      executablePath: found.path,
      args: ARGUMENTS,
      env: { ...process.env, ...found.environment },
    });
  } catch (error) {
    throw new Error(
      `no browser: ${found.path} does not start; set CHROMIUM_PATH to one that does. ${(error as Error).message}`,
    );
  }
}
