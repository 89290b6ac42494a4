import { mkdir } from "node:fs/promises";
import path from "node:path";
import axe from "axe-core";
import type { Page } from "playwright-core";
import { expect } from "vitest";
import { SCREENS, WINDOW } from "./browser.ts";

const SCHEMES = ["light", "dark"] as const;
type Scheme = (typeof SCHEMES)[number];
/** What colours decide; all else is the same in light and in dark, and is looked at once. */
const OF_COLOURS = ["color-contrast", "link-in-text-block"];
const GRAVE = new Set(["serious", "critical"]);

/** One element that breaks a rule. */
interface Finding {
  id: string;
  help: string;
  impact: string;
  inDialog: boolean;
  /** The start of the element's HTML. */
  where: string;
}

/** What is checked: everything in light and in dark unless told. */
interface Checked {
  schemes?: readonly Scheme[];
  /** Selector of the part of the page. */
  within?: string;
}

/** Runs axe in the page, which has its source from the first run on; as text, like all that runs there. */
async function findings(page: Page, within: string, rules?: readonly string[]): Promise<Finding[]> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(axe.source);
  const options = {
    resultTypes: ["violations"],
    elementRef: true,
    ...(rules ? { runOnly: { type: "rule", values: rules } } : {}),
  };
  return page.evaluate(`axe.run(${JSON.stringify(within)}, ${JSON.stringify(options)}).then(({ violations }) =>
    violations.flatMap(({ id, help, impact, nodes }) => nodes.map(({ element, html }) => (
      { id, help, impact, inDialog: element.closest("[role=dialog]") !== null, where: html.slice(0, 200) }))))`);
}

/** What keeps people from using the page; in an open dialog, whatever axe finds. */
export async function graveFindings(
  page: Page,
  { schemes = SCHEMES, within = "html" }: Checked = {},
): Promise<Finding[]> {
  const found: Finding[] = [];
  for (const colorScheme of schemes) {
    await page.emulateMedia({ colorScheme });
    found.push(...(await findings(page, within, colorScheme === "light" ? undefined : OF_COLOURS)));
  }
  await page.emulateMedia({ colorScheme: WINDOW.colorScheme ?? null });
  return found.filter(({ impact, inDialog }) => GRAVE.has(impact) || inDialog);
}

/** Fails the test where there are grave findings. What passes by itself does not count: a list is pale while another is loaded. */
export async function expectAccessible(page: Page, checked?: Checked): Promise<void> {
  await expect.poll(() => graveFindings(page, checked)).toEqual([]);
}

/** What reaches beyond the right edge of the screen without scrolling in itself. Run in the page, as text: the tests are
 * checked without the types of browsers, which are not those of Node. */
const TOO_WIDE = `document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
  [...document.querySelectorAll("body *")]
    .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map((element) => element.outerHTML.slice(0, 120))`;

/** Fails the test where the page is wider than a phone's screen. */
export async function expectFitsPhone(page: Page): Promise<void> {
  await page.setViewportSize(SCREENS.narrow);
  // Charts follow the width a moment later.
  await expect.poll(() => page.evaluate(TOO_WIDE)).toEqual([]);
  await page.setViewportSize(SCREENS.wide);
}

/** Widths between a phone's and a desk's screen: of tablets, and of windows beside another. */
const BETWEEN = [768, 1000, 1200];

/** Tables of which a part is out of sight. Run in the page. */
const CUT_OFF = `[...document.querySelectorAll("table")].flatMap((table) => {
  const { scrollWidth, clientWidth } = table.parentElement.parentElement;
  return scrollWidth > clientWidth ? [scrollWidth + " in " + clientWidth + ": " + table.textContent.slice(0, 80)] : [];
})`;

/** Fails the test where a table has no room for all of its columns; lists of cards are to stand in for it there. */
export async function expectTablesFit(page: Page): Promise<void> {
  for (const width of BETWEEN) {
    await page.setViewportSize({ ...SCREENS.wide, width });
    await expect.poll(() => page.evaluate(CUT_OFF), { message: `${width} pixels` }).toEqual([]);
  }
  await page.setViewportSize(SCREENS.wide);
}

/** Fails the test where the page says something with a typewriter's apostrophe. */
export async function expectTypographic(page: Page): Promise<void> {
  const said = (await page.locator("body").textContent()) ?? "";
  expect(said.match(/.{0,40}\w'\w.{0,20}/g) ?? []).toEqual([]);
}

/** Waits until nothing stands in for what is still being read. */
export const untilRead = (page: Page) =>
  expect.poll(() => page.locator("[aria-busy=true], .mantine-Skeleton-root").count()).toBe(0);

/** Takes pictures of the page for people to look at, wide and narrow, light and dark; nothing without SCREENSHOTS=DIR. */
export async function takeScreenshots(page: Page, name: string): Promise<void> {
  const folder = process.env.SCREENSHOTS;
  if (!folder) return;
  await mkdir(folder, { recursive: true });
  // What lies above the page covers the screen, not all that can be scrolled to.
  const fullPage = (await page.getByRole("dialog").count()) === 0;
  for (const size of Object.values(SCREENS)) {
    await page.setViewportSize(size);
    // What is fixed to the screen is drawn where the page is scrolled to.
    await page.evaluate("window.scrollTo(0, 0)");
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      const file = path.join(folder, `${name}-${size.width}-${colorScheme}.png`);
      await page.screenshot({ path: file, fullPage });
    }
  }
  await page.setViewportSize(SCREENS.wide);
  await page.emulateMedia({ colorScheme: WINDOW.colorScheme ?? null });
}
