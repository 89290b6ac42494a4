import type { Page } from "playwright-core";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ReceivedRequest, Receiver } from "../../demo/receiver.ts";
import { enterOn, tabTo } from "./keyboard.ts";
import { startWeb, type Web } from "./web.ts";

const KEY = "Shop front, production";
/** The signature and its time are made anew for each attempt; the rest is of the connection. */
const NOT_TOLD = /^(webhook-(signature|timestamp)|host|connection|content-length)$/i;

let web: Web;
let receiver: Receiver;
/** What each test leaves to those after it, as the administrator's way goes on. */
let secret: string;
let webhookId: string;
let deliveryId: string;

beforeAll(async () => {
  web = await startWeb();
  receiver = await web.service.receiver();
});
afterAll(() => web?.stop());

const dialog = (page: Page) => page.getByRole("dialog");
const section = (page: Page, name: string) => page.getByRole("region", { name, exact: true });
const go = (page: Page, name: string) =>
  page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true });
const lastPart = (page: Page) => new URL(page.url()).pathname.split("/").at(-1) as string;

/** Lists the webhooks over REST. */
async function list(
  key: string,
): Promise<{ status: number; Success: boolean; Data: { Url: string }[] | null }> {
  const response = await fetch(`${web.service.url}/api/webhook/list`, { headers: { "X-Service-Key": key } });
  return { status: response.status, ...((await response.json()) as { Success: boolean; Data: null }) };
}

async function signIn(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Everything that was sent for a delivery so far. */
const requestsOf = (id: string) =>
  receiver.received.filter(({ headers }) => headers["x-service-webhook-id"] === id);

test("§5.3: who signs in with the first key finds an empty instance, and makes a key that works over REST at once", () =>
  web.visit({ key: null }, async (page) => {
    await signIn(page, web.service.adminKey);
    await page.getByText("None was sent anything in the last 24 hours.").waitFor();
    await section(page, "First steps").getByRole("link", { name: "Make an API key" }).click();
    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByLabel("Name").fill(KEY);
    for (const permission of [/^Read /, /^Write /])
      await dialog(page).getByRole("checkbox", { name: permission }).check();
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    secret = await page.getByLabel("Secret", { exact: true }).inputValue();
    expect(await list(secret)).toMatchObject({ status: 200, Success: true, Data: [] });
    await page.getByRole("button", { name: "I have copied it" }).click();
    await page.getByRole("row").filter({ hasText: KEY }).waitFor();
  }));

test("who signs in with that key registers a webhook, whose test event arrives signed with the secret that is shown", () =>
  web.visit({ key: null }, async (page) => {
    await signIn(page, secret);
    await section(page, "First steps").getByRole("link", { name: "Register a webhook" }).click();
    await dialog(page).getByRole("checkbox", { name: "OrderDispatched" }).check();
    await dialog(page).getByRole("textbox", { name: "URL" }).fill(`${receiver.url}/hooks/orders`);
    await dialog(page).getByRole("button", { name: "Register webhook" }).click();
    await page.getByRole("button", { name: "Send test event" }).click();
    const arrived = receiver.until((received) => received.length > 0);
    await section(page, "Test event").getByText("Delivered: the endpoint").waitFor();
    const [request] = (await arrived) as [ReceivedRequest];
    webhookId = lastPart(page);

    await page.getByRole("button", { name: "Reveal secret" }).click();
    const signing = new Webhook(await page.getByRole("textbox", { name: "Signing secret" }).inputValue());
    const headers = request.headers as Record<string, string>;
    expect(signing.verify(request.body, headers)).toHaveProperty("OrderNumber");
    expect(() => signing.verify(`${request.body} `, headers)).toThrow();
    expect(headers["x-service-webhook-test"]).toBe("true");
    deliveryId = String(headers["x-service-webhook-id"]);
  }));

test("its page shows what the receiver got, and sends it once more under the same id", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await section(page, "Last deliveries").locator(`a[href="/deliveries/${deliveryId}"]`).click();
    await page.getByRole("heading", { name: "Delivery", exact: true }).waitFor();
    const [request] = requestsOf(deliveryId) as [ReceivedRequest];
    const shown = (await page.getByRole("table", { name: "Headers" }).textContent()) ?? "";
    const { rawHeaders } = request;
    const told = rawHeaders.flatMap((name, n) =>
      n % 2 === 0 && !NOT_TOLD.test(name) ? [`${name}${rawHeaders[n + 1]}`] : [],
    );
    expect(told.length).toBeGreaterThan(4);
    for (const header of told) expect(shown).toContain(header);
    const body = (await section(page, "the body as it is sent").textContent()) ?? "";
    expect(JSON.stringify(JSON.parse(body))).toBe(request.body);

    const again = receiver.until(() => requestsOf(deliveryId).length === 2);
    await page.getByRole("button", { name: "Send again" }).click();
    await again;
    const attempts = section(page, "Attempts").getByRole("listitem").filter({ hasText: "200 OK" });
    await attempts.filter({ hasText: "Attempt 2" }).waitFor();
    await expect.poll(() => attempts.count()).toBe(2);
    await section(page, "Summary").getByText("Delivered", { exact: true }).waitFor();
    const bodies = new Set(requestsOf(deliveryId).map((each) => each.body));
    expect(bodies).toEqual(new Set([request.body]));
  }));

test("the whole way, from signing in to sending again, is gone by keyboard alone", () =>
  web.visit({ key: null }, async (page) => {
    // The field has the focus when the page is there.
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.keyboard.type(web.service.adminKey);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();

    await enterOn(page, go(page, "API keys"));
    await enterOn(page, page.getByRole("button", { name: "New key" }));
    await dialog(page).getByLabel("Name").waitFor();
    await page.keyboard.type("By keyboard");
    await tabTo(page, dialog(page).getByRole("checkbox", { name: /^Read / }));
    await page.keyboard.press("Space");
    await tabTo(page, dialog(page).getByRole("combobox", { name: "Event types" }));
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await enterOn(page, dialog(page).getByRole("button", { name: "Create key" }));
    await enterOn(page, page.getByRole("button", { name: "I have copied it" }));
    await page.getByRole("row").filter({ hasText: "By keyboard" }).getByText("OrderDispatched").waitFor();

    await tabTo(page, go(page, "Webhooks"), { back: true });
    await page.keyboard.press("Enter");
    await enterOn(page, page.getByRole("button", { name: "New webhook" }));
    await tabTo(page, dialog(page).getByRole("checkbox", { name: "OrderDispatched" }));
    await page.keyboard.press("Space");
    await dialog(page)
      .getByRole("region", { name: /^Sample of / })
      .waitFor();
    await tabTo(page, dialog(page).getByRole("textbox", { name: "URL" }));
    await page.keyboard.type(`${receiver.url}/hooks/by-keyboard`);
    await page.keyboard.press("Enter");
    await enterOn(page, page.getByRole("button", { name: "Send test event" }));
    await section(page, "Test event").getByText("Delivered: the endpoint").waitFor();
    await enterOn(page, page.getByRole("link", { name: "The delivery, with every attempt" }));
    await page.getByRole("heading", { name: "Delivery", exact: true }).waitFor();
    const id = lastPart(page);
    await enterOn(page, page.getByRole("button", { name: "Send again" }));
    await section(page, "Attempts")
      .getByRole("listitem")
      .filter({ hasText: "Attempt 2" })
      .getByText("200 OK")
      .waitFor();
    expect(requestsOf(id).map(({ path }) => path)).toEqual(["/hooks/by-keyboard", "/hooks/by-keyboard"]);
  }));

test("revoking the key names its webhook and gives it to another key: REST refuses the key at once, events still arrive", () =>
  web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${KEY}` }).click();
    await dialog(page).getByText(`${receiver.url}/hooks/orders`).waitFor();
    await dialog(page).getByLabel("Transfer them to another key").check();
    await dialog(page).getByRole("combobox", { name: "New owner" }).click();
    await page.getByRole("option", { name: /^Administrator/ }).click();
    expect(await list(secret)).toMatchObject({ status: 200 });
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("1 webhook was taken over").waitFor();
    expect(await list(secret)).toMatchObject({ status: 401, Success: false, Data: null });
    const urls = (await list(web.service.adminKey)).Data?.map(({ Url }) => Url);
    expect(urls).toContain(`${receiver.url}/hooks/orders`);

    const before = receiver.received.length;
    const arrived = receiver.until((received) =>
      received.slice(before).some(({ path }) => path === "/hooks/orders"),
    );
    await web.service.publish();
    await arrived;
  }));
