import type { Locator, Page } from "playwright-core";
import { expect } from "vitest";

/** No page has so many things that can be focused before the one that is looked for. */
const MAX_STEPS = 80;

/**
 * Goes on from where the focus is, by the Tab key alone, until something has it.
 *
 * @param back whether to go backwards
 * @throws Error naming what had the focus instead, when it is not reached, or when nobody would see that it has it
 */
export async function tabTo(page: Page, target: Locator, { back = false } = {}): Promise<void> {
  await target.waitFor();
  const passed: string[] = [];
  for (let step = 0; step < MAX_STEPS; step += 1) {
    if ((await target.and(page.locator(":focus")).count()) > 0) {
      if ((await target.and(page.locator(":focus-visible")).count()) > 0) return;
      throw new Error(`${target} has the focus, and nobody sees it`);
    }
    await page.keyboard.press(back ? "Shift+Tab" : "Tab");
    passed.push(await page.evaluate<string>("document.activeElement.outerHTML.slice(0, 80)"));
  }
  throw new Error(`${target} is not reached by Tab; these were:\n${passed.join("\n")}`);
}

/**
 * Compares how what had the focus looks without it, and remembers what has it now. Run in the page. What draws
 * a choice may be beside it, and what draws a field around it.
 */
const GO_ON = `(() => {
  const look = ({ element }) =>
    [element, element.nextElementSibling, element.closest('[class*="-input"]:not(input)')].filter(Boolean).map((each) => {
      const { outline, boxShadow, borderColor, backgroundColor, translate } = getComputedStyle(each);
      return [outline, boxShadow, borderColor, backgroundColor, translate].join();
    }).join();
  const before = window.hadFocus;
  const now = { element: document.activeElement };
  const unseen = before && before.element.isConnected && before.element !== now.element && before.look === look(before);
  window.hadFocus = now.element === document.body ? undefined : { ...now, look: look(now) };
  return { unseen: unseen ? before.element.outerHTML.slice(0, 160) : "", isOver: now.element === document.body };
})()`;

/** Goes through a whole page by the Tab key, and fails the test where something has the focus and nobody sees it. */
export async function expectEveryFocusSeen(page: Page): Promise<void> {
  const unseen: string[] = [];
  let reached = 0;
  for (let isOver = false; !isOver && reached < 2 * MAX_STEPS; reached += 1) {
    await page.keyboard.press("Tab");
    const step = await page.evaluate<{ unseen: string; isOver: boolean }>(GO_ON);
    if (step.unseen) unseen.push(step.unseen);
    isOver = step.isOver;
  }
  expect(reached).toBeGreaterThan(5);
  expect(unseen).toEqual([]);
}
