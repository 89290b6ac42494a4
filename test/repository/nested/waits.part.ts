import { test } from "vitest";
import { part } from "../../support/parts.ts";
import { theBrowser } from "../../web/browser.ts";

test("uses PostgreSQL, Temporal and Chromium until the run is ended", async () => {
  const { missing } = (await part("chromium")) as { missing?: string };
  await Promise.all([part("postgres"), part("temporal"), missing ?? theBrowser()]);
  console.log("all parts run");
  await new Promise(() => {});
});
