import { expect, onTestFinished, test } from "vitest";
import { theBrowser, WINDOW } from "./browser.ts";
import { graveFindings } from "./looks.ts";

const UNREADABLE = "p { color: #333; background: #222 }";
const EMPTY_HEADING = "<h2></h2>";

/** Checks a page of this content; answers the rules that it breaks. */
async function broken(content: string): Promise<string[]> {
  const window = await (await theBrowser()).newContext(WINDOW);
  onTestFinished(() => window.close());
  const page = await window.newPage();
  await page.setContent(
    `<!doctype html><html lang="en"><title>A page</title><main><h1>A page</h1>${content}</main></html>`,
  );
  return [...new Set((await graveFindings(page)).map(({ id }) => id))];
}

test.each([
  ["a control without a name", "<button></button>", ["button-name"]],
  ["text that is unreadable", `<style>${UNREADABLE}</style><p>Text</p>`, ["color-contrast"]],
  [
    "text that is unreadable in dark only",
    `<style>@media (prefers-color-scheme: dark) { ${UNREADABLE} }</style><p>Text</p>`,
    ["color-contrast"],
  ],
  [
    "a small flaw in a dialog",
    `<div role="dialog" aria-label="A dialog">${EMPTY_HEADING}</div>`,
    ["empty-heading"],
  ],
])("%s fails the check of accessibility", async (_what, content, rules) => {
  expect(await broken(content)).toEqual(rules);
});

test("a small flaw beside a dialog does not fail the check of accessibility", async () => {
  expect(await broken(`${EMPTY_HEADING}<div role="dialog" aria-label="A dialog">Text</div>`)).toEqual([]);
});
