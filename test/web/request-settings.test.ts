import { afterAll, beforeAll, expect, test } from "vitest";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb();
});
afterAll(() => web?.stop());

test("headers and credentials are tried with the endpoint's response, saved, and shown without their values", async () => {
  const receiver = await web.service.receiver(({ headers }, response) => {
    if (headers.authorization === `Basic ${btoa("shop:right")}`) return 200;
    response.writeHead(403).end("wrong password");
    return undefined;
  });
  const webhookId = await web.service.register(`${receiver.url}/hooks`);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByText("None: deliveries carry the standard headers only.").waitFor();
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Add a header" }).click();
    await dialog.getByLabel("Name of header 1", { exact: true }).fill("Content-Length");
    await dialog.getByLabel("Value of header 1", { exact: true }).fill("4711");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByText(/Content-Length, which HTTP or this service sets/).waitFor();
    await dialog.getByLabel("Name of header 1", { exact: true }).fill("X-Tenant");
    await dialog.getByText("Basic", { exact: true }).click();
    await dialog.getByLabel("User name").fill("shop");
    await dialog.getByLabel("Password", { exact: true }).fill("wrong");
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/The endpoint answered 403/).waitFor();
    await dialog.getByText("wrong password").waitFor();
    await dialog.getByLabel("Password", { exact: true }).fill("right");
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/The endpoint answered 200/).waitFor();
    expect(receiver.received.at(-1)?.headers["x-tenant"]).toBe("4711");
    await expectAccessible(page);
    await takeScreenshots(page, "request-settings");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("Basic, user shop").waitFor();
    expect(await section.textContent()).toContain("X-Tenant");
    await expectFitsPhone(page);
    await section.getByRole("button", { name: "Change…" }).click();
    await dialog.getByRole("button", { name: "Remove header 1" }).click();
    await dialog.getByText("None", { exact: true }).click();
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("None: deliveries carry the standard headers only.").waitFor();
  });
});
