import { Connection } from "@temporalio/client";
import { expect, onTestFinished, test } from "vitest";
import { openDatabase, rows } from "../../src/lib/pg/database.ts";
import { theBrowser } from "../web/browser.ts";
import { part } from "./parts.ts";

// newcomer.slow.test.ts runs this file in other places and as other users.
test("the parts of a run work: PostgreSQL and Temporal answer, and Chromium shows a page", async ({
  skip,
}) => {
  const db = openDatabase((await part("postgres")).url, { max: 1 });
  onTestFinished(() => db.destroy());
  expect(await rows(db, "select 1 as answer")).toEqual([{ answer: 1 }]);
  const connection = await Connection.connect(await part("temporal"));
  onTestFinished(() => connection.close());
  expect((await connection.workflowService.getSystemInfo({})).serverVersion).toMatch(/^\d/);
  const chromium = await part("chromium");
  skip("missing" in chromium, "missing" in chromium ? chromium.missing : "");
  const page = await (await theBrowser()).newPage();
  onTestFinished(() => page.close());
  await page.goto("data:text/html,<h1>a page</h1>");
  expect(await page.textContent("h1")).toBe("a page");
});
