import { expect, test } from "vitest";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { aKey, aWebhook, SECOND, signedIn, TOO_MANY } from "./answers.ts";
import {
  all,
  click,
  expectFocus,
  field,
  fill,
  find,
  later,
  open,
  path,
  press,
  sees,
  seesNot,
  text,
} from "./page.tsx";

const BAR = "Search and commands";
const ANSWERS = {
  searchWebhooks: {
    webhooks: [aWebhook({ id: 7n, name: "Acme orders" }), aWebhook({ id: 8n, name: "Acme stock" })],
  },
  listCustomers: { customers: [{ userId: "tenant-42", displayName: "Acme" }] },
  listApiKeys: { apiKeys: [aKey({ name: "Acme, production", prefix: "whk_acme" }), aKey({ name: "Other" })] },
};
/** Types, and waits until that is searched. */
async function search(typed: string) {
  await fill(BAR, typed);
  await later(SECOND);
}
const options = () => all("option").map((each) => text(each));
const selected = () => all("option").find((each) => each.ariaSelected === "true");

test("words lead by Enter to the deliveries that have them all, and calls begin when the typing pauses", async () => {
  const { calls } = await open("/apps");
  const before = Object.values(calls).flat().length;
  await press("{Control>}k{/Control}");
  expectFocus(field(BAR));
  expect(Object.values(calls).flat().length).toBe(before);
  await press("SO-10056 tenant-42");
  await press("{Enter}");
  expect(path()).toBe("/deliveries?search=SO-10056+tenant-42");
  expect(all("dialog")).toEqual([]);
  expect(calls.searchWebhooks.length).toBeLessThanOrEqual(1);
});

test("one list has pages, actions, webhooks, customers and keys; arrows choose, and a screen reader hears what is chosen", async () => {
  await open("/apps", ANSWERS);
  await click(BAR);
  for (const each of ["New webhook", "Dispatch now", "Overview", "Audit log", "API documentation"])
    sees(each, find("listbox"));
  await search("acme");
  expect(options()).toEqual([
    "Deliveries with “acme”",
    expect.stringMatching(/^Acme orders/),
    expect.stringMatching(/^Acme stock/),
    "Acmetenant-42",
    "Acme, productionwhk_acme…",
  ]);
  await press("{ArrowUp}");
  expect(text(selected())).toContain("Acme, production");
  await press("{ArrowDown}{ArrowDown}");
  expect(field(BAR).getAttribute("aria-activedescendant")).toBe(selected()?.id);
  await press("{Enter}");
  expect(path()).toBe("/webhooks/7");
});

test("a webhook is paused by its name; a refusal names the webhook and the act", async () => {
  const { calls, answers } = await open("/apps", { ...ANSWERS, pauseWebhook: {} });
  await press("{Control>}k{/Control}");
  await search("pause");
  await press("{Enter}");
  expect(field(BAR).value).toBe("Pause ");
  await search("Pause orders");
  expect(options()).toEqual([
    expect.stringMatching(/^Pause Acme orders/),
    expect.stringMatching(/^Pause Acme stock/),
  ]);
  expect(calls.searchWebhooks.at(-1)?.search).toBe("orders");
  await press("{Enter}");
  expect(calls.pauseWebhook.map(({ webhookId }) => webhookId)).toEqual([7n]);
  sees("Acme orders is paused.");
  answers.pauseWebhook = TOO_MANY;
  await press("{Control>}k{/Control}");
  await search("pause stock");
  await press("{Enter}");
  sees("Acme orders was not paused: too much at once");
});

test("a key that may only read is offered no action, and what cannot be searched is said", async () => {
  const session = signedIn({ permissions: [Permission.READ_ADMINISTRATIVE_DATA] });
  await open("/", { getSession: session, searchWebhooks: TOO_MANY });
  await click(BAR);
  for (const each of ["New webhook", "Dispatch now", "API keys"]) seesNot(each, find("listbox"));
  await search("acme");
  sees("Too much at once: not everything was searched");
  await press("{Escape}");
  await later(SECOND);
  expectFocus(find("button", BAR));
});
