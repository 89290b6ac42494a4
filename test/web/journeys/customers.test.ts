import { expect, test } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { CustomerService } from "../../../gen/webhook/v1/customer_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { expectAccessible, expectFitsPhone, expectTypographic } from "../looks.ts";
import { expectCalls, sharedWeb } from "../web.ts";

const PERMISSIONS = [
  Permission.READ_ADMINISTRATIVE_DATA,
  Permission.WRITE_ADMINISTRATIVE_DATA,
  Permission.MANAGE_API_KEYS,
];
const ACME = "tenant/7?";
const GLOBEX = "tenant-8";

const web = await sharedWeb();
const { api } = web;
const customers = api.client(CustomerService);

/** A key of a customer with a webhook, and an event of the customer. */
async function aCustomer(customer: string, host: string): Promise<string> {
  const keys = api.client(ApiKeyService);
  const { secret } = await keys.createApiKey({
    name: `Key of ${customer}`,
    customer,
    permissions: PERMISSIONS,
  });
  await api.client(WebhookService, secret).createWebhook({ process: 1, url: `https://${host}/hooks` });
  await api.client(EventService).publishEvent({
    idempotencyKey: customer,
    userId: customer,
    data: {
      case: "orderDispatched",
      value: { orderId: 1n, orderNumber: "SO-1", dispatchedAt: { seconds: 1_795_000_000n } },
    },
  });
  return secret;
}

// Before the page has read its lists.
const acmeKey = await aCustomer(ACME, "acme.example");
await aCustomer(GLOBEX, "globex.example");

test("the operator finds a customer, names it, sets its quotas, pauses and resumes it", () =>
  web.visit({ path: "/customers" }, async (page) => {
    const dialog = page.getByRole("dialog");
    await page.getByRole("row", { name: new RegExp(GLOBEX) }).waitFor();
    await page.getByRole("searchbox", { name: "Search customers" }).fill("tenant/");
    await page.getByRole("row", { name: new RegExp(GLOBEX) }).waitFor({ state: "detached" });
    await expectTypographic(page);
    await expectFitsPhone(page);
    await expectAccessible(page, { schemes: ["light"] });
    await page.getByRole("link", { name: ACME }).click();
    await page.getByRole("heading", { name: ACME, level: 1 }).waitFor();
    await page.getByRole("region", { name: "Webhooks" }).getByText("acme.example").waitFor();
    await page.getByRole("region", { name: "Last deliveries" }).getByText("SO-1").waitFor();
    await page.getByRole("region", { name: "API keys" }).getByText(`Key of ${ACME}`).waitFor();
    await expectTypographic(page);
    await expectFitsPhone(page);
    await expectAccessible(page);

    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await dialog.getByLabel("Name").fill("Acme");
    await dialog.getByLabel("Metadata").fill("plan: gold");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { name: "Acme", level: 1 }).waitFor();
    await page.getByRole("button", { name: "Change", exact: true }).click();
    await dialog.getByLabel("Pending deliveries").fill("5000");
    await dialog.getByRole("button", { name: "Save quotas" }).click();
    await page.getByText("At most 5,000 pending deliveries").waitFor();
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("Deliveries of all its webhooks wait").waitFor();
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await page.getByText("Deliveries of all its webhooks wait").waitFor({ state: "detached" });
    const { customer } = await customers.getCustomer({ customer: ACME });
    expect(customer).toMatchObject({
      displayName: "Acme",
      metadata: { plan: "gold" },
      quotas: { webhooks: 0, pendingDeliveries: 5_000 },
    });
    expect(customer?.paused).toBeUndefined();
  }));

test("the operator restricts lists to a customer", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    const choose = async (customer: string) => {
      await page.getByRole("combobox", { name: "Customer" }).click();
      await page.getByRole("option", { name: customer }).click();
    };
    await page.getByText("No webhooks yet").waitFor();
    await choose(GLOBEX);
    await page.getByRole("link", { name: "globex.example/hooks", exact: true }).waitFor();
    await choose("All, of customers too");
    await page.getByRole("link", { name: "acme.example/hooks", exact: true }).waitFor();
    for (const name of ["Deliveries", "API keys", "Audit log"]) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      await choose(GLOBEX);
      await page
        .getByRole("table")
        .getByText(/globex|Key of tenant-8/)
        .first()
        .waitFor();
      await expect.poll(() => page.getByRole("table").textContent()).not.toMatch(/acme|Key of tenant\/7/);
    }
  }));

test("§5.3: a customer signs in with its key, and sees its own data without metadata, actions and other customers", () =>
  web.visit({ path: "/", key: acmeKey }, async (page) => {
    await page.getByText("Live delivery status of the customer’s webhooks").waitFor();
    const pages = page.getByRole("navigation", { name: "Pages" });
    expect(await pages.getByRole("link", { name: "Installed apps" }).count()).toBe(0);
    for (const [name, says] of [
      ["Webhooks", "acme.example"],
      ["Deliveries", "SO-1"],
      ["API keys", `Key of ${ACME}`],
      ["Audit log", "acme.example"],
      ["Customer", "tenant/7?"],
    ] as const) {
      await pages.getByRole("link", { name, exact: true }).click();
      await page.getByRole("main").getByText(says).first().waitFor();
      const text = await page.getByRole("main").textContent();
      for (const hidden of [GLOBEX, "globex", "gold"]) expect(text).not.toContain(hidden);
    }
    await page.getByRole("heading", { name: "Acme", level: 1 }).waitFor();
    for (const name of ["Edit", "Pause", "Erase", "Change"])
      expect(await page.getByRole("button", { name, exact: true }).count()).toBe(0);
  }));

test("the operator erases a customer, and the page says what was removed", () =>
  web.visit({ path: `/customers/details?id=${GLOBEX}` }, async (page) => {
    await page.getByRole("button", { name: "Erase", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await expectAccessible(page, { within: "[role=dialog]" });
    await dialog.getByLabel(`Type ${GLOBEX} to confirm`).fill(GLOBEX);
    await dialog.getByRole("button", { name: "Erase customer" }).click();
    await page.getByText("The erasure has started").waitFor();
    const { customer } = await customers.getCustomer({ customer: GLOBEX });
    expect(customer?.erasure?.started).toBeDefined();
  }));

expectCalls("customers", web);
