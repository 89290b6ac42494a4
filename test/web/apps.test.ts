import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { SCREENS } from "./browser.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
});
afterAll(() => web?.stop());

test("without apps the page says what one is for, and makes the first by keyboard alone", () =>
  web.visit({ path: "/apps" }, async (page) => {
    await page.getByText("X-Service-UserId").waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "apps-none");
    await page.getByRole("button", { name: "New app" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").locator("input:focus").waitFor();
    await page.keyboard.press("Enter");
    await page.getByText("Enter the app’s name").waitFor();
    await page.keyboard.type("Stock planner");
    await page.keyboard.press("Enter");
    await page.getByRole("row", { name: /Stock planner/ }).waitFor();
    const { installedApps } = await web.service.keys.listInstalledApps({});
    expect(installedApps.map(({ name }) => name)).toEqual(["Stock planner"]);
    await expect.poll(() => page.evaluate("document.activeElement.textContent")).toBe("New app");
    const shown = await page.getByRole("row", { name: /Stock planner/ }).textContent();
    expect(shown).toContain(installedApps[0]?.id);
    expect(shown).toContain("No keys yet");
  }));

test("an app leads to its keys and webhooks, and to a new key that belongs to it", async () => {
  const { installedApp } = await web.service.keys.createInstalledApp({ name: "Label printer" });
  await web.visit({ path: "/apps" }, async (page) => {
    await page
      .getByRole("row", { name: /Label printer/ })
      .getByRole("link", { name: "No keys yet" })
      .click();
    await page.getByText("“Label printer” has no key that works").waitFor();
    await page.getByRole("button", { name: "New key for the app" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill("Printer 1");
    await page.getByRole("checkbox", { name: /^Write / }).check();
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByRole("button", { name: "I have copied it" }).click();
    await page.getByRole("row", { name: /Printer 1.*Label printer/ }).waitFor();
    const { apiKeys } = await web.service.keys.listApiKeys({});
    expect(apiKeys.find(({ name }) => name === "Printer 1")?.installedApplicationId).toBe(installedApp?.id);
    await page.getByRole("link", { name: "Installed apps" }).click();
    await page.getByRole("row", { name: /Label printer.*1 key/ }).waitFor();
    await page.getByRole("link", { name: "Webhooks of Label printer" }).click();
    await page.waitForURL(`**/webhooks?application=${installedApp?.id}`);
  });
});

test("the list of webhooks names the app that it is filtered by, also without webhooks, or its id to those who may not see apps", async () => {
  const { installedApp } = await web.service.keys.createInstalledApp({ name: "Scale" });
  const id = installedApp?.id as string;
  const { secret } = await web.service.keys.createApiKey({
    name: "Reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  await web.service.register("https://shop.example/hooks");
  for (const [key, shown] of [
    [web.service.adminKey, "Scale"],
    [secret, id],
  ] as const) {
    await web.visit({ path: `/webhooks?application=${id}`, key }, async (page) => {
      await page.getByText("1 webhook exists, but it does not match these filters.").waitFor();
      const app = page.getByRole("combobox", { name: "Installed app" });
      await expect.poll(() => app.inputValue()).toBe(shown);
      await page.getByRole("button", { name: "Clear the filters" }).click();
      await page.getByRole("row", { name: /shop\.example/ }).waitFor();
      expect(await app.inputValue()).toBe("");
    });
  }
});

/** The most by which things on one line may be offset, in pixels. */
const MAX_OFFSET = 10;

test("dozens of apps can be searched, used by everyone, and on a phone they are cards", async () => {
  for (let n = 1; n <= 12; n++) {
    const name =
      n % 6 === 0 ? `Returns and reverse logistics for retailers with several brands ${n}` : `App ${n}`;
    const { installedApp } = await web.service.keys.createInstalledApp({ name });
    if (n % 2 === 0 && installedApp)
      await web.service.keys.createApiKey({
        name: `Key of ${n}`,
        permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
        installedApplicationId: installedApp.id,
      });
  }
  await web.visit({ path: "/apps" }, async (page) => {
    await page.getByRole("row", { name: /App 11/ }).waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "apps");
    await page.setViewportSize(SCREENS.narrow);
    for (const name of ["App 11", "Returns and reverse logistics for retailers with several brands 12"]) {
      const card = page.getByRole("listitem").filter({ hasText: name });
      const [title, remove] = await Promise.all([
        card.getByText(name, { exact: true }).boundingBox(),
        card.getByRole("button", { name: `Remove ${name}` }).boundingBox(),
      ]);
      expect(Math.abs((title?.y ?? 0) - (remove?.y ?? Number.NaN)), name).toBeLessThan(MAX_OFFSET);
    }
    await page.setViewportSize(SCREENS.wide);
    await page.getByLabel("Search apps").fill("several brands 6");
    await page.getByRole("row", { name: /App 11/ }).waitFor({ state: "detached" });
    await expect.poll(() => page.getByRole("row").count()).toBe(2);
    await page.getByLabel("Search apps").fill("nothing like it");
    await page.getByRole("button", { name: "Clear the filters" }).click();
    await page.getByRole("row", { name: /App 11/ }).waitFor();
  });
});
