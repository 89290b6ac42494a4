import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { enterOn } from "./keyboard.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
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
    // An empty row is there at once.
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
    // What stays empty is not saved.
    await enterOn(page, dialog.getByRole("button", { name: "Add a header" }));
    await dialog.getByLabel("Name of header 3", { exact: true }).and(page.locator(":focus")).waitFor();
    await enterOn(page, dialog.getByRole("button", { name: "Remove header 3" }));
    await dialog.getByRole("button", { name: "Add a header" }).and(page.locator(":focus")).waitFor();
    expect(await dialog.getByLabel(/^Name of header/).count()).toBe(2);
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "detached" });
    expect(await section.textContent()).toContain("HeadersX-TenantAuthentication");
    await section.getByRole("button", { name: "Change…" }).click();
    await dialog.getByRole("button", { name: "Remove header 1" }).click();
    await dialog.getByRole("radiogroup", { name: "Authentication" }).getByText("None").click();
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("None: deliveries carry the standard headers only.").waitFor();
    // The page reads the webhook anew, so that an edit is not refused as if somebody else had changed the webhook.
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await dialog.getByRole("textbox", { name: "Name" }).fill("With headers");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { level: 1, name: "With headers" }).waitFor();
  });
});

test("OAuth 2.0 is tried with the token endpoint's error, saved, and shown without its secret", async () => {
  const receiver = await web.service.receiver(({ path, body, headers }, response) => {
    if (path === "/hooks") return headers.authorization === "Bearer page-token" ? 200 : 401;
    const isRight = new URLSearchParams(body).get("client_secret") === "right";
    response.writeHead(isRight ? 200 : 400, { "content-type": "application/json" });
    const token = { access_token: "page-token", token_type: "Bearer", expires_in: 60 };
    response.end(JSON.stringify(isRight ? token : { error: "invalid_client" }));
    return undefined;
  });
  const webhookId = await web.service.register(`${receiver.url}/hooks`);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("OAuth 2.0", { exact: true }).click();
    await dialog.getByLabel("Token URL").fill(`${receiver.url}/token`);
    await dialog.getByLabel("Client id").fill("shop");
    await dialog.getByLabel("Scopes (optional)").fill("orders");
    await dialog.getByLabel(/in the body/).check();
    await dialog.getByLabel("Client secret", { exact: true }).fill("wrong");
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/token endpoint localhost:\d+ answered 400 \(invalid_client\)/).waitFor();
    await dialog.getByLabel("Client secret", { exact: true }).fill("right");
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/The endpoint answered 200/).waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "request-settings-oauth2");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("OAuth 2.0, client shop").waitFor();
    expect(await section.textContent()).toContain(`${receiver.url}/token`);
    await expectFitsPhone(page);
    // What is stored is in the form, but for the secret.
    await section.getByRole("button", { name: "Change…" }).click();
    expect(await dialog.getByLabel("Token URL").inputValue()).toBe(`${receiver.url}/token`);
    const secret = dialog.getByLabel("Client secret", { exact: true });
    expect(await secret.inputValue()).toBe("");
    expect(await secret.getAttribute("placeholder")).toContain("Stored");
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/The endpoint answered 200/).waitFor();
  });
});

test("a client certificate and a private authority are tried, saved, and shown without the key", async () => {
  const authority = await createLocalAuthority();
  const [own, shop] = await Promise.all([
    authority.issue(["localhost"]),
    authority.issue(["shop"], { client: true }),
  ]);
  const demands = { requestCert: true, rejectUnauthorized: true, ca: authority.cert };
  const server = createServer({ ...own, ...demands }, (request, response) =>
    request.resume().on("end", () => response.end("noted")),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const webhookId = await web.service.register(`https://localhost:${port}/hooks`);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/No response: .*unknown authority/).waitFor();
    await dialog.getByRole("radiogroup", { name: "Certificate authorities" }).getByText("New").click();
    await dialog.getByLabel("Private authorities").fill(authority.cert);
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/No response: connection (closed|reset)/).waitFor();
    await dialog.getByRole("radiogroup", { name: "Client certificate" }).getByText("New").click();
    await dialog.getByLabel("Certificate", { exact: true }).fill(shop.cert);
    await dialog.getByLabel("Private key").fill("nonsense");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByText(/must be a private key in PEM/).waitFor();
    await dialog.getByLabel("Private key").fill(shop.key);
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/The endpoint answered 200/).waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "request-settings-tls");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText(/CN=shop, issued by CN=Local receivers/).waitFor();
    await expectFitsPhone(page);
    // Both are kept unless they are replaced or removed.
    await section.getByRole("button", { name: "Change…" }).click();
    await dialog.getByText(/CN=shop, issued by/).waitFor();
    await dialog.getByRole("button", { name: "Send a test request" }).click();
    await dialog.getByText(/The endpoint answered 200/).waitFor();
    await dialog.getByRole("radiogroup", { name: "Client certificate" }).getByText("None").click();
    await dialog.getByRole("radiogroup", { name: "Certificate authorities" }).getByText("Public").click();
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("None: deliveries carry the standard headers only.").waitFor();
  });
});

test("settings that could not be read are not offered for a change, which would erase them", async () => {
  const webhookId = await web.service.register("https://unread.example/hooks");
  const headers = [{ name: "X-Tenant", value: "4711" }];
  const authentication = { case: "bearer" as const, value: { token: "right-token" } };
  await web.service.webhooks.setWebhookRequestSettings({ webhookId, settings: { headers, authentication } });
  await web.visit({}, async (page) => {
    const path = "**/GetWebhookRequestSettings*";
    await page.route(path, (route) =>
      route.fulfill({ status: 503, json: { code: "unavailable", message: "the service starts" } }),
    );
    await page.goto(`/webhooks/${webhookId}`);
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByRole("alert").waitFor();
    expect(await section.getByRole("button").allTextContents()).toEqual(["Try again"]);
    await page.unroute(path);
    await section.getByRole("button", { name: "Try again" }).click();
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name of header 2", { exact: true }).fill("X-New");
    await dialog.getByLabel("Value of header 2", { exact: true }).fill("1");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("X-Tenant, X-New").waitFor();
    await section.getByText("Bearer token").waitFor();
  });
});

test("settings that the service cannot decrypt are removed from the page, after a question", async () => {
  const { webhooks, db } = web.service;
  const webhookId = await web.service.register("https://undecryptable.example/hooks");
  const settings = { headers: [{ name: "X-Tenant", value: "4711" }] };
  await webhooks.setWebhookRequestSettings({ webhookId, settings });
  // Encrypted for another webhook.
  const copy = await web.service.register("https://undecryptable.example/copied");
  await db.raw(
    `update webhooks set request_settings = (select request_settings from webhooks where id = ?) where id = ?`,
    [String(webhookId), String(copy)],
  );
  await web.visit({ path: `/webhooks/${copy}` }, async (page) => {
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByText(/can be decrypted with neither SECRET_KEY nor/).waitFor();
    expect(await section.getByRole("button", { name: "Change…" }).count()).toBe(0);
    await section.getByRole("button", { name: "Remove the stored settings…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Remove settings" }).waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "request-settings-removal");
    await dialog.getByRole("button", { name: "Remove settings" }).click();
    await section.getByText("None: deliveries carry the standard headers only.").waitFor();
    await section.getByRole("button", { name: "Change…" }).waitFor();
  });
  expect((await webhooks.getWebhookRequestSettings({ webhookId })).settings?.headerNames).toEqual([
    "X-Tenant",
  ]);
});

test("settings that somebody else has saved since the dialog opened are not written over", async () => {
  const { webhooks } = web.service;
  const webhookId = await web.service.register("https://two-tabs.example/hooks");
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    const name = dialog.getByLabel("Name of header 1", { exact: true });
    await name.fill("X-Mine");
    await dialog.getByLabel("Value of header 1", { exact: true }).fill("1");
    const settings = { headers: [{ name: "X-Theirs", value: "4711" }] };
    await webhooks.setWebhookRequestSettings({ webhookId, settings });
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByText("This webhook was changed meanwhile").waitFor();
    const stored = await webhooks.getWebhookRequestSettings({ webhookId });
    expect(stored.settings?.headerNames).toEqual(["X-Theirs"]);
    await expectAccessible(page);
    await dialog.getByRole("button", { name: "Load the current values" }).click();
    await expect.poll(() => name.inputValue()).toBe("X-Theirs");
    expect(await dialog.getByText("This webhook was changed meanwhile").count()).toBe(0);
    await dialog.getByLabel("Name of header 2", { exact: true }).fill("X-Mine");
    await dialog.getByLabel("Value of header 2", { exact: true }).fill("1");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("X-Theirs, X-Mine").waitFor();
  });
});

test("a URL of another host asks for headers and credentials at once, and saves them with it", async () => {
  const { webhooks } = web.service;
  const [from, to] = await Promise.all([web.service.receiver(), web.service.receiver()]);
  const webhookId = await web.service.register(`${from.url}/hooks`);
  const authentication = { case: "basic" as const, value: { username: "shop", password: "old" } };
  await webhooks.setWebhookRequestSettings({
    webhookId,
    settings: { headers: [{ name: "X-Tenant", value: "4711" }], authentication },
  });
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await page.getByText("Basic, user shop").waitFor();
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    const dialog = page.getByRole("dialog");
    const url = dialog.getByRole("textbox", { name: "URL" });
    const tenant = dialog.getByLabel("X-Tenant");
    await url.fill(`${from.url}/another`);
    await dialog.getByText("The URL changes").waitFor();
    expect(await tenant.count()).toBe(0);
    await url.fill(`${to.url}/hooks`);
    await tenant.waitFor();
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await dialog.getByText("Enter the value of X-Tenant.").waitFor();
    await dialog.getByText("Enter the password.").waitFor();
    await tenant.fill("4712 ü");
    await dialog.getByLabel(/^Password/).fill("new");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await dialog.getByText(/visible ASCII characters/).waitFor();
    await tenant.fill("4712");
    await expectAccessible(page);
    await takeScreenshots(page, "moved-credentials");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await dialog.waitFor({ state: "detached" });
    // Unset values are the stored ones.
    const stored = {
      headers: [{ name: "X-Tenant" }],
      authentication: { case: "basic" as const, value: { username: "shop" } },
    };
    await webhooks.tryWebhookRequest({ webhookId, settings: stored });
    expect(to.received[0]?.headers).toMatchObject({
      "x-tenant": "4712",
      authorization: `Basic ${btoa("shop:new")}`,
    });

    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await url.fill(`${from.url}/hooks`);
    await dialog.getByLabel("Send without headers and credentials").check();
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await page.getByText("None: deliveries carry the standard headers only.").waitFor();
  });
});

test("the outcome of a test request is shown only beside the settings that it tried", async () => {
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  let isHeld = false;
  const receiver = await web.service.receiver(async () => {
    if (isHeld) await held;
    return 200;
  });
  const webhookId = await web.service.register(`${receiver.url}/hooks`);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Headers and authentication" });
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    const name = dialog.getByLabel("Name of header 1", { exact: true });
    const outcome = dialog.getByText(/The endpoint answered 200/);
    const send = dialog.getByRole("button", { name: "Send a test request" });
    await name.fill("X-Tenant");
    await dialog.getByLabel("Value of header 1", { exact: true }).fill("4711");
    await send.click();
    await outcome.waitFor();
    await dialog.getByRole("button", { name: "Remove header 1" }).click();
    await outcome.waitFor({ state: "detached" });
    await send.click();
    await outcome.waitFor();
    await dialog.getByText("Basic", { exact: true }).click();
    await outcome.waitFor({ state: "detached" });

    // A change while the request is sent.
    await dialog.getByLabel("User name").fill("shop");
    await dialog.getByLabel("Password", { exact: true }).fill("right");
    isHeld = true;
    await send.click();
    await expect.poll(() => receiver.received.length).toBe(3);
    await dialog.getByLabel("User name").fill("other");
    const answered = page.waitForResponse("**/TryWebhookRequest");
    release();
    await answered;
    await expect.poll(() => send.isEnabled()).toBe(true);
    expect(await outcome.count()).toBe(0);
  });
});
