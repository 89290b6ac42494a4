import { beforeEach, expect, test } from "vitest";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import type { ListProcessesRequest } from "../../../gen/webhook/v1/webhook_pb.ts";
import { aDelivery, aKey, aWebhook, deliveries, deliveryId, signedIn, TYPES, webhooks } from "./answers.ts";
import { all, click, fill, find, goTo, open, region, sees, seesNot } from "./page.tsx";

const NUMBER = 1004 as WebhookProcess;
const PAID = {
  number: 1004,
  name: "InvoicePaid",
  alias: "invoice.paid",
  description: "A customer has paid an invoice.",
  sample: '{"InvoiceNumber":"INV-1001"}',
  filterFields: [{ path: "event.invoice_number", type: "string" }],
};
const ENDED = { number: 1005, name: "SubscriptionEnded", description: "It has ended.", deprecated: true };
let types: (typeof PAID | typeof ENDED | (typeof TYPES)[number])[];
beforeEach(() => {
  types = [...TYPES, PAID, ENDED];
});

/** Answers as the service does. */
const listProcesses = ({ brief, processes }: ListProcessesRequest) => ({
  processes: types
    .filter(({ number }) => processes.length === 0 || (processes as number[]).includes(number))
    .map((type) => (brief ? { ...type, sample: "", filterFields: [] } : type)),
});
const paid = aWebhook({ webhookProcess: NUMBER, webhookProcessName: "InvoicePaid" });

test("a registered event type is shown with its alias, and an address with the alias filters by it", async () => {
  const delivery = aDelivery({
    webhookProcess: NUMBER,
    webhookProcessName: "InvoicePaid",
    subject: "INV-1001",
  });
  const { calls } = await open("/deliveries?type=invoice.paid", {
    listProcesses,
    ...webhooks(paid),
    ...deliveries(delivery),
  });
  sees("INV-1001 InvoicePaid (invoice.paid)", find("main"));
  expect(calls.listDeliveries[0]).toMatchObject({ process: 1004 });
  expect(calls.listProcesses).toMatchObject([{ brief: true, processes: [] }]);
  await goTo("/webhooks?process=invoice.paid");
  sees("InvoicePaid (invoice.paid)", find("main"));
  await goTo("/webhooks?process=StockLevelChanged");
  seesNot("https://shop.example/hooks");
});

test("an event type that was registered since the page was opened has its name at once, and its alias after a reload", async () => {
  types = TYPES;
  const delivery = aDelivery({
    id: deliveryId(2),
    webhookProcess: NUMBER,
    webhookProcessName: "InvoicePaid",
  });
  const answers = { listProcesses, ...webhooks(paid), ...deliveries(delivery) };
  await open("/deliveries", answers);
  sees("InvoicePaid", find("main"));
  seesNot("invoice.paid");
  types = [...TYPES, PAID];
  await open("/deliveries", answers);
  sees("InvoicePaid (invoice.paid)", find("main"));
});

test("a webhook is registered for an event type that is found by its alias; deprecated ones are not offered", async () => {
  const { calls } = await open("/webhooks/new", { listProcesses, ...webhooks() });
  expect(all("checkbox", /SubscriptionEnded/)).toEqual([]);
  await fill("Search event types", "invoice.paid");
  await click("InvoicePaid (invoice.paid)", "checkbox");
  sees("INV-1001", find("region", "Sample of InvoicePaid"));
  expect(calls.listProcesses.at(-1)).toMatchObject({ brief: false, processes: [1004] });
});

test("of thousands of event types, the form shows some, and finds each by its name", async () => {
  const many = Array.from({ length: 5_000 }, (_, n) => ({
    ...PAID,
    number: 1_000 + n,
    name: `Type${n}`,
    alias: "",
  }));
  types = [...TYPES, ...many];
  await open("/webhooks/new", { listProcesses, ...webhooks() });
  sees(`200 of ${types.length} are shown: search for the others.`);
  expect(all("checkbox", /^Type/)).toHaveLength(200 - TYPES.length);
  await fill("Search event types", "type4999");
  find("checkbox", "Type4999");
});

test("the filter's form lists the fields that the service names, and test events start from its sample", async () => {
  await open("/webhooks/7?tab=settings", { listProcesses, ...webhooks(paid), ...deliveries() });
  await click("Change…", "button", region("Filter"));
  sees("event.invoice_number string", find("dialog", "Filter"));
  await click("Cancel", "button", find("dialog", "Filter"));
  await click("Activity", "tab");
  await click("Edit payload");
  expect((find("textbox", "Payload") as HTMLTextAreaElement).value).toContain("INV-1001");
});

test("a key that may not read webhooks reads no event types, and sees the names that come with keys", async () => {
  const key = aKey({
    allowedProcesses: [NUMBER, 1],
    allowedProcessNames: ["InvoicePaid", "OrderDispatched"],
  });
  const { calls } = await open("/keys", {
    getSession: signedIn({ permissions: [Permission.MANAGE_API_KEYS] }),
    listApiKeys: { apiKeys: [key] },
  });
  sees("InvoicePaid", find("main"));
  expect(calls.listProcesses).toEqual([]);
});
