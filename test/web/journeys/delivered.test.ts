import type { Page } from "playwright-core";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import type { ReceivedRequest } from "../../../demo/receiver.ts";
import { isAuthentic } from "../../../docs/examples/verify-public-key.ts";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { decideBreakers } from "../../../src/breakers/decide.ts";
import { act, expectCalls, startWeb } from "../web.ts";

const KEY = "Shop front, production";
/** The signature and its time are made anew for each attempt; the rest is of the connection. */
const NOT_TOLD = /^(webhook-(signature|timestamp)|host|connection|content-length)$/i;

const web = await startWeb({ RETRY_INITIAL_DELAY: "50ms", TEMPORAL_UI_URL: "http://temporal.example:8233" });
const { service } = web;
const receiver = await service.receiver();
/** The webhook that the first test registers. */
let webhookId: string;

const dialog = (page: Page) => page.getByRole("dialog");
const section = (page: Page, name: string) => page.getByRole("region", { name, exact: true });
const press = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();
const attempts = (page: Page) => section(page, "Attempts").getByRole("listitem");
const tab = (page: Page, name: string) => page.getByRole("tab", { name, exact: true }).click();
const lastPart = (page: Page) => new URL(page.url()).pathname.split("/").at(-1) as string;

async function signIn(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key", { exact: true }).fill(key);
  await press(page, "Sign in");
}

/** Sends a test event from a webhook's page; waits until it has arrived. */
async function sendTestEvent(page: Page): Promise<void> {
  await tab(page, "Activity");
  const [answer] = await Promise.all([
    page.waitForResponse("**/SendTestEvent"),
    page.getByRole("button", { name: /^Send (test event|another)$/ }).click(),
  ]);
  const { deliveryId: id } = (await answer.json()) as { deliveryId: string };
  const outcome = section(page, "Test event").filter({ has: page.locator(`a[href="/deliveries/${id}"]`) });
  await outcome.getByText(/^200 OK after/).waitFor();
}

test("§5.3: who signs in with the first key makes a key that works over REST at once, and signs in with it", () =>
  web.visit({ key: null }, async (page) => {
    await signIn(page, service.adminKey);
    await page.getByText("No attempts were made in the last 24 hours.").waitFor();
    await section(page, "First steps").getByRole("link", { name: "Make an API key" }).click();
    await press(page, "New key");
    await dialog(page).getByLabel("Name").fill(KEY);
    for (const permission of [/^Read /, /^Write /])
      await dialog(page).getByRole("checkbox", { name: permission }).check();
    await press(page, "Create key");
    const secret = await page.getByLabel("Secret", { exact: true }).inputValue();
    const answer = await fetch(`${service.url}/api/webhook/list`, { headers: { "X-Service-Key": secret } });
    expect([answer.status, await answer.json()]).toMatchObject([200, { Success: true, Data: [] }]);
    await press(page, "I have copied it");
    await page.getByRole("row").filter({ hasText: KEY }).waitFor();
    await page.getByRole("button", { name: /^Signed in: / }).click();
    await press(page, "Sign out");
    await signIn(page, secret);
    await section(page, "First steps").getByRole("link", { name: "Register a webhook" }).click();
    await page.getByRole("checkbox", { name: "OrderDispatched" }).check();
    await page.getByRole("textbox", { name: "URL" }).fill(`${receiver.url}/hooks/orders`);
    await press(page, "Register webhook");
    await press(page, "Test now");
    await page.getByText(/^The endpoint answered 200/).waitFor();
    await page.getByRole("img", { name: /^Wait .*, TLS .*, First byte / }).waitFor();
    await section(page, "2 of 2: Test it").getByText("Certificate").first().waitFor();
    await page.getByRole("link", { name: "Open the webhook" }).click();
    await page.getByRole("button", { name: "Send test event" }).waitFor();
    webhookId = lastPart(page);
  }));

test("a test event arrives signed with the secret that is shown, with both after a rotation; its page shows what was sent and sends it again", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await sendTestEvent(page);
    const request = receiver.received.at(-1) as ReceivedRequest;
    const asked: string[] = [];
    page.on("request", (each) => asked.push(each.url()));
    await tab(page, "Verify");
    await press(page, "Reveal secret");
    const field = page.getByRole("textbox", { name: "Signing secret" });
    const shown = await field.inputValue();
    const headers = request.headers as Record<string, string>;
    expect(new Webhook(shown).verify(request.body, headers)).toHaveProperty("OrderNumber");
    expect(() => new Webhook(shown).verify(`${request.body} `, headers)).toThrow();
    expect(headers["x-service-webhook-test"]).toBe("true");

    await press(page, "Rotate");
    await press(page, "Rotate secret");
    await page.getByText("The new secret is active").waitFor();
    expect(await page.getByRole("textbox", { name: "Old secret" }).inputValue()).toBe(shown);
    const newest = await field.inputValue();
    await sendTestEvent(page);
    const signed = receiver.received.at(-1) as ReceivedRequest;
    for (const each of [shown, newest])
      new Webhook(each).verify(signed.body, signed.headers as Record<string, string>);
    // Nowhere but in the fields, which were left.
    const kept = await page.evaluate<string>(
      "document.documentElement.outerHTML + JSON.stringify(localStorage)",
    );
    for (const each of [shown, newest])
      expect(kept + asked.join()).not.toContain(each.slice("whsec_".length));

    const id = String(headers["x-service-webhook-id"]);
    await section(page, "Last deliveries").locator(`a[href="/deliveries/${id}"]`).click();
    const table = (await page.getByRole("table", { name: "Headers" }).textContent()) ?? "";
    const told = request.rawHeaders.flatMap((name, n) =>
      n % 2 === 0 && !NOT_TOLD.test(name) ? [`${name}${request.rawHeaders[n + 1]}`] : [],
    );
    expect(told.length).toBeGreaterThan(4);
    for (const header of told) expect(table).toContain(header);
    const body = (await section(page, "the body as it is sent").textContent()) ?? "";
    expect(JSON.stringify(JSON.parse(body))).toBe(request.body);
    await press(page, "Send again");
    await attempts(page).filter({ hasText: "Attempt 2" }).getByText("200 OK").waitFor();
    await section(page, "Summary").getByText("Delivered", { exact: true }).waitFor();
    const sent = receiver.received.filter((each) => each.headers["x-service-webhook-id"] === id);
    expect(sent.map((each) => each.body)).toEqual([request.body, request.body]);
  }));

test("a webhook is paused, says what waits for it, and sends it to its new address when it is resumed", async () => {
  const target = await service.receiver();
  const id = await service.register("https://moving.example/orders");
  await web.visit({ path: `/webhooks/${id}` }, async (page) => {
    await press(page, "Pause");
    await page.getByText("Events of OrderDispatched queue until you resume it.").waitFor();
    const { eventId } = await service.publish(6n);
    await act(page, "Edit…");
    await dialog(page).getByRole("textbox", { name: "URL" }).fill(`${target.url}/moved`);
    await dialog(page).getByText("1 delivery not delivered yet goes to the new URL.").waitFor();
    await press(page, "Save changes");
    await page.getByText("1 delivery waits.").waitFor();
    // A test event reaches the receiver nevertheless, and what waits goes on waiting.
    await sendTestEvent(page);
    expect(target.received.map(({ headers }) => headers["x-service-webhook-test"])).toEqual(["true"]);
    await page.getByText("1 delivery waits.").waitFor();
    await press(page, "Resume");
    await page.getByText("The webhook is resumed").waitFor();
    await service.untilFinal(eventId);
    expect(target.received.map(({ path }) => path)).toEqual(["/moved", "/moved"]);
  });
  await service.webhooks.deleteWebhook({ webhookId: id });
});

test("a failed delivery tells every attempt with its answer and its run, and is sent again in a second round", async () => {
  let status = 503;
  const body = `{"error": "maintenance", "detail": "${"The warehouse is being counted. ".repeat(12)}"}`;
  const failing = await service.receiver((_request, response) => {
    response.writeHead(status, { "content-type": "application/json" }).end(body);
    return undefined;
  });
  const id = await service.register(`${failing.url}/tenants/acme/hooks`);
  const { eventId } = await service.publish(9_007_199_254_740_993n);
  const made = (await service.untilFinal(eventId)).find((each) => each.webhookId === id)?.id as string;
  // Attempts are judged a moment later.
  await expect.poll(() => service.db("incidents").whereNull("closed").pluck("id")).toHaveLength(1);
  const linesOf = (attempt: number) =>
    ["webhook-timestamp", "webhook-signature"]
      .map((name) => `${name}: ${failing.received[attempt - 1]?.headers[name]}`)
      .join("\n");
  await web.visit({ path: `/deliveries/${made}` }, async (page) => {
    const signatureOf = async (attempt: number) => {
      await page.getByText(`Headers of attempt ${attempt}`, { exact: true }).click();
      return section(page, `the signature headers of attempt ${attempt}`).textContent();
    };
    await page.getByText("The first attempt and three retries failed.").waitFor();
    const fourth = attempts(page).first();
    for (const part of ["Attempt 4", "503 Service Unavailable", "Round 1, 4 of 4", "maintenance"])
      await fourth.getByText(part).first().waitFor();
    await fourth.getByText(/^No attempt follows\. Send it again once that is mended\./).waitFor();
    await fourth.getByText("What to do: see the receiver’s log for the reason.").waitFor();
    expect(await signatureOf(4)).toBe(linesOf(4));
    await section(page, "the response headers of attempt 4").getByText("application/json").waitFor();
    // The activity of its retries, of all activities of the run.
    const activity = page.getByRole("link", { name: "Open its activity in the Temporal UI" });
    const [, workflowId = "", runId = "", number] =
      /\/workflows\/([^/]+)\/([^/]+)\/history\/events\/(\d+)$/.exec(
        (await activity.getAttribute("href")) ?? "",
      ) ?? [];
    const handle = service.temporal.workflow.getHandle(decodeURIComponent(workflowId), runId);
    const event = (await handle.fetchHistory()).events?.find((each) => String(each.eventId) === number);
    expect(event?.activityTaskScheduledEventAttributes?.activityType?.name).toBe("retryDeliveries");

    status = 200;
    await press(page, "Send again");
    await section(page, "Summary").getByText("Delivered", { exact: true }).waitFor();
    for (const part of ["Attempt 5", "200 OK", "Round 2, 1 of 4"])
      await attempts(page).first().getByText(part).first().waitFor();
    // Not stored, and the same as it was.
    expect(await signatureOf(5)).toBe(linesOf(5));
    await attempts(page).first().getByText("recomputed with the current secret").waitFor();

    await section(page, "Summary").getByRole("link", { name: eventId }).click();
    await section(page, "Recipients").getByText("/tenants/acme/hooks").first().waitFor();
    await section(page, "the payload").getByText("9007199254740993").waitFor();
    const facts = await section(page, "Summary").textContent();
    for (const part of ["Usertenant-1", "Published by", "Idempotency key"]) expect(facts).toContain(part);
  });
  await service.webhooks.deleteWebhook({ webhookId: id });
});

test("a failing webhook is fixed and proved in three clicks: its new URL is tested, and what failed is replayed until it works", async () => {
  const broken = await service.receiver(() => 404);
  const mended = await service.receiver();
  const id = await service.register(`${broken.url}/hooks`);
  const events = await Promise.all([31n, 32n].map((orderId) => service.publish(orderId)));
  const ended = (await Promise.all(events.map(({ eventId }) => service.untilFinal(eventId)))).flat();
  const failed = ended.filter((each) => each.webhookId === id);
  expect(failed.map(({ state }) => state)).toEqual([DeliveryState.FAILED, DeliveryState.FAILED]);
  await web.visit({ path: `/webhooks/${id}` }, async (page) => {
    const fix = section(page, "Fix it");
    await fix.getByText("The receiver answers 404 Not Found").waitFor();
    await fix.getByText("What to do: check the path of the webhook’s URL.").waitFor();
    await fix.getByText(/^A circuit breaker holds deliveries back after 10 failed attempts/).waitFor();
    const url = fix.getByRole("textbox", { name: "URL" });
    await url.click();
    await url.fill(`${mended.url}/hooks`);
    await press(page, "Save and test");
    await fix.getByText(/^The endpoint answered 200/).waitFor();
    await fix.getByText("The failures so far are of the earlier one").waitFor();
    expect(await fix.getByText("404 Not Found").count()).toBe(0);
    await press(page, "Replay 2 failed");
    await page.getByText("2 of 2 delivered").waitFor();
    await section(page, "It works again").getByText("The latest attempts have succeeded.").waitFor();
    expect(mended.received.map(({ headers }) => headers["x-service-webhook-test"])).toEqual([
      "true",
      undefined,
      undefined,
    ]);
  });
  await service.webhooks.deleteWebhook({ webhookId: id });
});

test("public-key signatures are turned on, rotated and turned off, and the key shown verifies a test event", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await tab(page, "Verify");
    const part = section(page, "Public-key signature");
    await part.getByRole("button", { name: "Turn on" }).click();
    const key = part.getByRole("textbox", { name: "Public key", exact: true });
    const first = await key.inputValue();
    await sendTestEvent(page);
    const request = receiver.received.at(-1);
    expect(isAuthentic(first, request?.headers ?? {}, request?.body ?? "")).toBe(true);
    await tab(page, "Verify");
    await part.getByRole("button", { name: "Rotate key pair" }).click();
    await dialog(page).getByRole("button", { name: "Rotate" }).click();
    expect(await part.getByRole("textbox", { name: "Old public key" }).inputValue()).toBe(first);
    expect(await key.inputValue()).not.toBe(first);
    await part.getByRole("button", { name: "Turn off" }).click();
    await dialog(page).getByRole("button", { name: "Turn off" }).click();
    await part.getByText("Off: deliveries are signed with the signing secret only.").waitFor();
    // The page reads the webhook anew, so that an edit is not refused as if somebody else had changed the webhook.
    await dialog(page).waitFor({ state: "detached" });
    await act(page, "Edit…");
    await dialog(page).getByRole("textbox", { name: "Name" }).fill("Public key");
    await press(page, "Save changes");
    await page.getByRole("heading", { level: 1, name: "Public key" }).waitFor();
  }));

/** What the headers and credentials of a webhook are, and the dialog that changes them. */
const settings = (page: Page) => section(page, "Headers and authentication");

async function changeSettings(page: Page): Promise<void> {
  await settings(page).getByRole("button", { name: "Change…" }).click();
}

async function tryRequest(page: Page, outcome: RegExp): Promise<void> {
  await press(page, "Send a test request");
  await dialog(page).getByText(outcome).waitFor();
}

test("headers and credentials are tried with the endpoint's response, saved, shown without their values, and asked for again for another host", async () => {
  const isRight = (password: string) => `Basic ${btoa(`shop:${password}`)}`;
  const guarded = await service.receiver(({ headers }, response) => {
    if (headers.authorization === isRight("right")) return 200;
    response.writeHead(403).end("wrong password");
    return undefined;
  });
  const other = await service.receiver();
  const id = await service.register(`${guarded.url}/hooks`);
  await web.visit({ path: `/webhooks/${id}?tab=settings` }, async (page) => {
    await changeSettings(page);
    await dialog(page).getByLabel("Name of header 1", { exact: true }).fill("X-Tenant");
    await dialog(page).getByLabel("Value of header 1", { exact: true }).fill("4711");
    await dialog(page).getByText("Basic", { exact: true }).click();
    await dialog(page).getByLabel("User name").fill("shop");
    await dialog(page).getByLabel("Password", { exact: true }).fill("wrong");
    await tryRequest(page, /The endpoint answered 403/);
    await dialog(page).getByText("wrong password").waitFor();
    await dialog(page).getByLabel("Password", { exact: true }).fill("right");
    await tryRequest(page, /The endpoint answered 200/);
    expect(guarded.received.at(-1)?.headers["x-tenant"]).toBe("4711");
    await press(page, "Save");
    await settings(page).getByText("Basic, user shop").waitFor();
    await settings(page).getByText("X-Tenant").waitFor();

    await press(page, "Edit");
    await dialog(page).getByRole("textbox", { name: "URL" }).fill(`${other.url}/hooks`);
    await dialog(page).getByLabel("X-Tenant").fill("4712");
    await dialog(page)
      .getByLabel(/^Password/)
      .fill("new");
    await press(page, "Save changes");
    await dialog(page).waitFor({ state: "detached" });
    await sendTestEvent(page);
    expect(other.received[0]?.headers).toMatchObject({ "x-tenant": "4712", authorization: isRight("new") });
  });
  await service.webhooks.deleteWebhook({ webhookId: id });
});

test("a filter is written, corrected, tried on the latest events, saved, at work, and removed", async () => {
  const id = await service.register(`${receiver.url}/filtered`);
  for (const orderId of [1n, 2n, 3n]) await service.untilFinal((await service.publish(orderId)).eventId);
  await web.visit({ path: `/webhooks/${id}?tab=settings` }, async (page) => {
    const part = section(page, "Filter");
    const text = dialog(page).getByLabel("Events to send");
    await part.getByRole("button", { name: "Change…" }).click();
    await text.fill('event.Carrier == "DHL"');
    await press(page, "Try on the latest events");
    await dialog(page)
      .getByText(/OrderDispatched has no field Carrier; its fields: order_id/)
      .waitFor();
    await dialog(page).getByText("Fields of the event").click();
    await dialog(page).getByText("event.lines[0].sku").waitFor();
    await dialog(page).getByText("Functions", { exact: true }).click();
    await dialog(page).getByText("text.lowerAscii()").waitFor();
    await text.fill("event.order_id >= 2 && event.?order_id.orValue(0) <= 3");
    await press(page, "Try on the latest events");
    await dialog(page)
      .getByText(/^2 of the latest \d+ events match\.$/)
      .waitFor();
    await press(page, "Save");
    await part.getByText("event.order_id >= 2").waitFor();
    const recipients = await service.untilFinal((await service.publish(1n)).eventId);
    const filtered = recipients.find((each) => each.webhookId === id);
    await tab(page, "Activity");
    await section(page, "Last deliveries").locator(`a[href="/deliveries/${filtered?.id}"]`).waitFor();
    expect(filtered?.state).toBe(DeliveryState.FILTERED);
    await tab(page, "Settings");
    await part.getByRole("button", { name: "Change…" }).click();
    await text.fill("");
    await press(page, "Save");
    await part.getByText("None: every event of this type is sent.").waitFor();
  });
  await service.webhooks.deleteWebhook({ webhookId: id });
});

test("a circuit breaker is switched on with its thresholds, shows its state, and lets what waits go at a click", () =>
  web.visit({ path: `/webhooks/${webhookId}?tab=settings` }, async (page) => {
    const part = section(page, "Circuit breaker");
    await part.getByRole("button", { name: "Change…" }).click();
    await dialog(page).getByLabel("Use a circuit breaker").check({ force: true });
    await dialog(page).getByLabel("Failed attempts in a row").fill("4");
    await press(page, "Save");
    await part.getByText("after 4 failed attempts over 30 minutes").waitFor();
    await service.db.raw(
      `update webhook_breakers set failures = 12, failing_since = now() - interval '31 minutes', due = now()
        where webhook_id = ?`,
      [webhookId],
    );
    // Maintenance of the service may do it first.
    await decideBreakers(service.db, 30);
    await page.reload();
    await tab(page, "Activity");
    const notice = page.getByRole("note").filter({ hasText: "Circuit breaker open" });
    await notice.getByText(/12 attempts in a row have failed, over 31 minutes/).waitFor();
    await notice.getByRole("button", { name: "Send all now" }).click();
    await notice.waitFor({ state: "detached" });
    await tab(page, "Settings");
    await part.getByText(/^Closed, since/).waitFor();
  }));

test("the overview counts deliveries without a reload, dispatches on request, and links the runs", () =>
  web.visit({}, async (page) => {
    const delivered = section(page, "Attempts").getByText(/^\d+ delivered$/);
    const count = async () => Number(/^\d+/.exec((await delivered.textContent()) ?? "")?.[0]);
    // What the page has kept of an earlier visit may still change.
    await page.reload();
    await delivered.waitFor();
    const before = await count();
    await service.untilFinal((await service.publish(4n)).eventId);
    await expect.poll(count).toBe(before + 1);
    await press(page, "Dispatch now");
    await page.getByText("A dispatch has started").waitFor();
    const runs = section(page, "Last dispatch runs");
    await runs.getByRole("button", { name: "Show" }).click();
    const link = runs.getByRole("link", { name: "Open in a new tab" }).first();
    expect(await link.getAttribute("href")).toMatch(
      /^http:\/\/temporal\.example:8233\/namespaces\/default\/workflows\//,
    );
  }));

expectCalls("delivered", web);
