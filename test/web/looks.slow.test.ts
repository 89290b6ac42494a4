import { expect, test } from "vitest";
import { theBrowser, WINDOW } from "./browser.ts";
import { graveFindings } from "./looks.ts";

const UNREADABLE = "p { color: #333; background: #222 }";

test("the check of accessibility finds a control without a name, text that is unreadable in dark, and small flaws in dialogs only", async () => {
  const window = await (await theBrowser()).newContext(WINDOW);
  try {
    const page = await window.newPage();
    await page.setContent(`<!doctype html><html lang="en"><title>A page</title>
      <style>@media (prefers-color-scheme: dark) { ${UNREADABLE} }</style>
      <main><h1>A page</h1><h2></h2><p>Text</p><button></button>
      <div role="dialog" aria-label="A dialog"><h2 id="flaw"></h2></div></main></html>`);
    const found = await graveFindings(page);
    expect(new Set(found.map(({ id, inDialog }) => `${id} ${inDialog}`))).toEqual(
      new Set(["button-name false", "empty-heading true", "color-contrast false"]),
    );
    expect(await graveFindings(page, { schemes: ["light"], within: "[role=dialog]" })).toMatchObject([
      { id: "empty-heading" },
    ]);
  } finally {
    await window.close();
  }
});
