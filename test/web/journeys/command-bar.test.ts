import { expect, test } from "vitest";
import { aWebhook } from "../../support/builders.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "../looks.ts";
import { expectCalls, sharedWeb } from "../web.ts";

const web = await sharedWeb();
const { db } = web.api.context;
const webhookId = await aWebhook().at("https://acme.example/hooks").in(db);
await db("webhooks").where("id", String(webhookId)).update({ name: "Acme orders" });

test("by keyboard alone, words lead to deliveries, a name to its webhook, and a webhook is paused", () =>
  web.visit({ path: "/replays" }, async (page) => {
    await page.getByRole("heading", { name: "Replays", level: 1 }).waitFor();
    const field = page.getByRole("combobox", { name: "Search and commands" });
    const option = (name: RegExp) => page.getByRole("option", { name, selected: true });
    const open = async (text: string) => {
      await page.keyboard.press("Control+K");
      await page.keyboard.type(text);
    };
    // The first time, the bar is loaded.
    await open("");
    await field.and(page.locator(":focus")).waitFor();
    await page.keyboard.type("SO-10056 of tenant-42");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Deliveries", level: 1 }).waitFor();
    expect(new URL(page.url()).searchParams.get("search")).toBe("SO-10056 of tenant-42");
    await open("acme");
    await page.getByRole("option", { name: /^Acme orders/ }).waitFor();
    await expectAccessible(page, { within: "[role=dialog]" });
    await expectFitsPhone(page);
    await takeScreenshots(page, "command-bar");
    await page.keyboard.press("ArrowDown");
    await option(/^Acme orders/).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Acme orders", level: 1 }).waitFor();

    await open("pause acme");
    await option(/^Pause Acme orders/).waitFor();
    await page.keyboard.press("Enter");
    await page.getByText("Acme orders is paused.").waitFor();
    expect(await db("webhooks").where("id", String(webhookId)).pluck("paused")).not.toContain(null);
  }));

expectCalls("commands", web);
