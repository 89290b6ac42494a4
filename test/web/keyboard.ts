import type { Locator, Page } from "playwright-core";

/** No page has so many things that can be focused before the one that is looked for. */
const MOST_STEPS = 80;

/**
 * Goes on from where the focus is, by the Tab key alone, until something has it.
 *
 * @param back whether to go backwards
 * @throws Error naming what had the focus instead, when it is not reached, or when nobody would see that it has it
 */
export async function tabTo(page: Page, target: Locator, { back = false } = {}): Promise<void> {
  await target.waitFor();
  const passed: string[] = [];
  for (let step = 0; step < MOST_STEPS; step += 1) {
    if ((await target.and(page.locator(":focus")).count()) > 0) {
      if ((await target.and(page.locator(":focus-visible")).count()) > 0) return;
      throw new Error(`${target} has the focus, and nobody sees it`);
    }
    await page.keyboard.press(back ? "Shift+Tab" : "Tab");
    passed.push(await page.evaluate<string>("document.activeElement.outerHTML.slice(0, 80)"));
  }
  throw new Error(`${target} is not reached by Tab; these were:\n${passed.join("\n")}`);
}

/** Goes to something by the Tab key, and presses Enter on it. */
export async function enterOn(page: Page, target: Locator): Promise<void> {
  await tabTo(page, target);
  await page.keyboard.press("Enter");
}
