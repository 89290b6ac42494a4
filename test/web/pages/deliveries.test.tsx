import { expect, test } from "vitest";
import {
  type Delivery,
  DeliveryState,
  ExportFormat,
  WaitingFor,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import {
  aDelivery,
  ago,
  ahead,
  aWebhook,
  deliveries,
  deliveryId,
  HOUR,
  MINUTE,
  SECOND,
  TOO_MANY,
  webhooks,
} from "./answers.ts";
import {
  type Answers,
  all,
  choose,
  click,
  expectFocus,
  fill,
  find,
  goTo,
  isDisabled,
  later,
  open,
  path,
  press,
  row,
  sees,
  seesNot,
  text,
  value,
} from "./page.tsx";

/** How often the list is read again. */
const REFRESH = 4 * SECOND;
const SHOP = aWebhook();
const PAUSED = aWebhook({ id: 9n, url: "https://paused.example/hooks", paused: ago(HOUR) });

/** The list of these deliveries, of webhooks that are there. */
const openList = (shown: Delivery[], answers: Answers = {}, at = "/deliveries") =>
  open(at, { ...webhooks(SHOP, PAUSED), ...deliveries(...shown), ...answers });

/** The numbers of the deliveries that are listed, from the top. */
const listed = () => all("link", /^01a2b3c4-0000/).map((link) => Number(text(link).slice(-4)));
const tick = (n: number) => click(`Select delivery ${deliveryId(n)}`, "checkbox");
const failed = (n: number, webhookId = 7n) => aDelivery({ id: deliveryId(n), webhookId });

test("deliveries are found by an id in an old address, by the filters of a linked one, and by when they were created, in the viewer's zone", async () => {
  const { calls } = await openList([], {}, "/deliveries?id=so-2026-77");
  expect(path()).toBe("/deliveries?search=so-2026-77");
  expect(calls.listDeliveries.at(-1)?.search).toBe("so-2026-77");
  sees("A search finds whole values");
  await goTo("/deliveries?state=failed,cancelled&webhook=7&type=OrderDispatched&last=24h");
  const { FAILED, CANCELLED } = DeliveryState;
  const linked = {
    states: [FAILED, CANCELLED],
    webhookId: 7n,
    process: 1,
    from: { seconds: ago(24 * HOUR).seconds },
  };
  expect(calls.listDeliveries.at(-1)).toMatchObject(linked);
  await goTo("/deliveries");
  await choose("Created", "The last 24 hours");
  expect(calls.listDeliveries.at(-1)?.from?.seconds).toBe(ago(24 * HOUR).seconds);
  await choose("Created", "From … to …");
  // Midnight in Berlin, where it is an hour later than in UTC.
  expect(path()).toBe("/deliveries?from=2026-11-19T23%3A00%3A00.000Z");
  sees("20 Nov 2026, 00:00", find("button", "From"));
  sees("In your time zone");
  await click(all("button", /Show times in UTC/)[0] as HTMLElement);
  sees("19 Nov 2026, 23:00", find("button", "From"));
  sees("In UTC");
  await choose("Created", "Any time");
  await choose("Created", "From … to …");
  expect(path()).toBe("/deliveries?from=2026-11-20T00%3A00%3A00.000Z");
  await click(all("button", /Show times in your time zone/)[0] as HTMLElement);
});

test("new deliveries are counted while the list is read, move nothing, and are shown on request", async () => {
  const first = [failed(1), failed(2)];
  const arrived: Delivery[] = [];
  await openList([], {
    listDeliveries: ({ pageToken }) => {
      if (pageToken === "anchor") return { deliveries: arrived, nextPageToken: "pin" };
      const shown = pageToken === "pin" ? first : [...arrived, ...first];
      return { deliveries: shown, previousPageToken: "anchor" };
    },
  });
  sees("Kept up to date");
  arrived.push(failed(4), failed(3));
  await later(REFRESH);
  find("button", "Show 2 new deliveries");
  expect(listed()).toEqual([1, 2]);
  first[1] = aDelivery({ id: deliveryId(2), state: DeliveryState.DELIVERED });
  await later(REFRESH);
  sees("Delivered", row("0002"));
  await click("Show 2 new deliveries");
  expect(listed()).toEqual([4, 3, 1, 2]);
});

test("deliveries unfold to their attempts in place, by keyboard, and follow them", async () => {
  const attempts = [
    { number: 1, durationMs: 40, status: 502 },
    { number: 2, durationMs: 15_000, error: "no response within 15 s" },
  ];
  const retrying = aDelivery({ state: DeliveryState.RETRYING, attemptCount: 2, nextAttempt: ahead(HOUR) });
  const shown = [retrying];
  await openList(shown, { getDelivery: () => ({ delivery: shown[0], attempts }) });
  const button = () => find("button", `Attempts of delivery ${deliveryId(1)}`);
  const lines = () =>
    all("listitem", undefined, find("list", `Attempts of delivery ${deliveryId(1)}, newest first`));
  expect(button().ariaExpanded).toBe("false");
  button().focus();
  await press("{Enter}");
  expect(lines().map((line) => text(line))).toEqual([
    expect.stringMatching(/Attempt 2.*No response within 15 s.*took 15 s/),
    expect.stringMatching(/Attempt 1.*502 Bad Gateway.*took 40 ms/),
  ]);
  expect(button().ariaExpanded).toBe("true");
  expectFocus(button());
  attempts.push({ number: 3, durationMs: 12, status: 200 });
  shown[0] = aDelivery({ state: DeliveryState.DELIVERED, attemptCount: 3 });
  await later(REFRESH);
  expect(lines()).toHaveLength(3);
  sees(/Attempt 3.*200 OK.*took 12 ms/, lines()[0]);
  await press("{Enter}");
  expect(button().ariaExpanded).toBe("false");
});

test("a refused delivery holds up none of the other ticked ones and is named, and trying again sends nothing twice", async () => {
  const shown = [failed(1), failed(2), failed(3)];
  const refused = new DomainError("NOT_FOUND", `webhook 6 of delivery ${deliveryId(2)} is deleted`);
  const { calls } = await openList(shown, {
    sendAgain: (request) => {
      if (request.deliveryId === deliveryId(2)) throw refused;
      shown[Number(request.deliveryId.slice(-1)) - 1] = aDelivery({
        id: request.deliveryId,
        state: DeliveryState.PENDING,
      });
      return {};
    },
    listDeliveries: () => ({ deliveries: shown }),
  });
  const sent = () => calls.sendAgain.map((call) => Number(call.deliveryId.slice(-1)));
  for (const n of [1, 2, 3]) await tick(n);
  await click("Send again…");
  await click("Send 3 deliveries again");
  sees("2 deliveries will be sent with the next dispatch.", find("alert"));
  sees(`Webhook 6 of delivery ${deliveryId(2)}`, find("alert"));
  expect(sent()).toEqual([1, 2, 3]);
  // The question stays the same once the list shows the sent ones as pending.
  sees("Pending", row("0003"));
  await click("Send 3 deliveries again");
  expect(sent()).toEqual([1, 2, 3, 2]);
});

test("a search in payloads shows what it finds unless a file is chosen, and needs three characters", async () => {
  const { calls } = await openList([failed(1)], {
    exportDeliveries: [{ exported: 1n, examined: 3n, deliveries: [failed(2)] }],
  });
  await click("Export…");
  const shown = () => find("radio", "Show here") as HTMLInputElement;
  expect(shown().checked).toBe(false);
  await fill("Text in the payload", '"');
  expect(shown().checked).toBe(true);
  await click("Search");
  sees("Enter at least 3 characters.");
  await fill("Text in the payload", "SO-1");
  await click("Search");
  sees("1 delivery found; 3 examined.");
  expect(calls.exportDeliveries).toMatchObject([
    { payloadText: "SO-1", format: ExportFormat.UNSPECIFIED, from: { seconds: ago(24 * HOUR).seconds } },
  ]);
  await click("CSV file", "radio");
  await fill("Text in the payload", "SO-2");
  find("button", "Export");
  // What the fields hold by now does not change what was found.
  sees("1 delivery found; 3 examined.");
});

test("deliveries of paused webhooks are said to wait; a replay of every webhook's takes a typed word", async () => {
  await openList([failed(1), failed(2, 9n), failed(3, 9n)], {}, "/deliveries?state=cancelled&last=24h");
  await click("Send all of these again…");
  sees("This covers every webhook and every user");
  const dialog = find("dialog");
  expect(isDisabled("Send again", dialog)).toBe(true);
  await fill("Type “replay” to confirm", "replay");
  expect(isDisabled("Send again", dialog)).toBe(false);
  await press("{Escape}");
  for (const n of [1, 2, 3]) await tick(n);
  await click("Send again…");
  await click("Send 3 deliveries again");
  sees("1 delivery will be sent with the next dispatch. 2 deliveries wait until the webhook is resumed.");
});

test("a count that ends early says so, and does not hold up the replay", async () => {
  const searchedBackTo = { seconds: BigInt(Date.UTC(2026, 0, 2, 3, 4, 5) / SECOND) };
  const counted = { deliveries: [{}, {}, {}], nextPageToken: "older", searchedBackTo };
  const { calls } = await openList(
    [],
    { listDeliveries: ({ pageSize }) => (pageSize === 1_000 ? counted : { deliveries: [failed(1)] }) },
    "/deliveries?webhook=7",
  );
  await click("Send failed ones again…");
  const dialog = find("dialog", "Send at least 3 deliveries again?");
  sees("Counted back to 2 Jan 2026", dialog);
  await click("Send again", "button", dialog);
  expect(calls.startReplay).toHaveLength(1);
});

test("an export survives a failed refresh of the list behind it, Escape and a click beside it", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { answers } = await openList([failed(1)], {
    exportDeliveries: async function* () {
      yield { exported: 0n };
      await promise;
      yield { exported: 1n, lines: "id\n" };
    },
  });
  await click("Export…");
  await click("Export", "button", find("dialog"));
  answers.listDeliveries = TOO_MANY;
  await later(REFRESH);
  sees("Too many calls.");
  await press("{Escape}");
  await click(document.querySelector(".mantine-Modal-overlay") as HTMLElement);
  // Exports have no deadline.
  await later(2 * MINUTE);
  find("button", "Stop");
  resolve();
  await later(0);
  sees(/1 delivery\. Saved as deliveries-2026-11-21T11-0\d-\d\dZ\.csv\./);
});

test("while failures of a new filter are counted, the previous filter's failures are hidden", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  await openList([failed(1)], {
    listFailureReasons: async ({ webhookId }) => {
      if (webhookId === 9n) await promise;
      return { reasons: [{ reason: webhookId === 9n ? "HTTP 404" : "HTTP 503", count: 382 }] };
    },
  });
  sees("382 HTTP 503", find("group", "Failures by reason"));
  await goTo("/deliveries?webhook=9");
  expect(all("group", "Failures by reason")).toEqual([]);
  resolve();
  await later(0);
  sees("HTTP 404", find("group", "Failures by reason"));
});

test("reasons of failures say what they cover, and lead to the incident of the webhooks that still fail", async () => {
  await openList([failed(1)], {
    listFailureReasons: {
      reasons: [
        { reason: "certificate has expired", count: 4_900, incidentId: "i1", failingSince: ago(HOUR) },
        { reason: "HTTP 503", count: 100 },
      ],
      examined: 5_000,
      searchedBackTo: ago(2 * HOUR),
      total: 10_842n,
    },
  });
  const reasons = find("group", "Failures by reason");
  sees("4,900 certificate has expired, 100 HTTP 503", reasons);
  sees("of the newest 5,000 of 10,842, created since 21 Nov 2026", reasons);
  expect(find("link", "certificate has expired").getAttribute("href")).toBe("/incidents/i1");
});

test("a reason without an open incident leads to its deliveries, among those that the filter finds", async () => {
  const refused = "connection refused; check that the server runs (ECONNREFUSED)";
  const reasons = [{ reason: refused, count: 2 }];
  const link = () => find("link", "connection refused (ECONNREFUSED)");
  await openList([failed(1)], { listFailureReasons: { reasons } }, "/deliveries?search=acme&last=24h&page=x");
  await click(link());
  const at = () =>
    Object.fromEntries([...new URLSearchParams(path().split("?")[1])].filter(([, value]) => value));
  const found = { search: `acme error:${refused}`, state: "failed,retrying", last: "24h" };
  expect(at()).toEqual(found);
  await click(link());
  expect(at()).toEqual(found);
});

test("a search in payloads without a beginning goes back from the end of the filter", async () => {
  const to = new Date(Date.UTC(2026, 10, 18, 12));
  const { calls } = await openList([], {}, `/deliveries?to=${to.toISOString()}`);
  await click("Export…");
  await fill("Text in the payload", '"OrderId":72');
  expect(value("Created", find("dialog"))).toBe("The 24 hours before “To”");
  await click("Search");
  const seconds = BigInt(to.getTime() / SECOND);
  expect(calls.exportDeliveries).toMatchObject([{ from: { seconds: seconds - 86_400n }, to: { seconds } }]);
});

const aside = () => find("region", "Open delivery");

test("a delivery opens beside the list, in the address; the arrow keys open the next ones, and closing it returns to its row", async () => {
  const shown = [failed(1), failed(2), failed(3)];
  const { calls } = await openList(shown, {}, "/deliveries?state=failed");
  await click(deliveryId(2), "link");
  expect(path()).toBe(`/deliveries?state=failed&open=${deliveryId(2)}`);
  expect(listed()).toEqual([1, 2, 3]);
  sees("#7 · https://shop.example/hooks", aside());
  expectFocus(find("link", deliveryId(2)));
  await press("{ArrowDown}");
  expect(path()).toBe(`/deliveries?state=failed&open=${deliveryId(3)}`);
  expectFocus(find("link", deliveryId(3)));
  for (const key of ["{ArrowDown}", "{ArrowUp}", "{ArrowUp}", "{ArrowUp}"]) await press(key);
  expect(calls.getDelivery.at(-1)).toMatchObject({ deliveryId: deliveryId(1) });
  expect(find("link", deliveryId(1)).ariaCurrent).toBe("true");
  await click("Close the delivery");
  expect(path()).toBe("/deliveries?state=failed");
  expectFocus(find("link", deliveryId(1)));
  // A list of other deliveries begins without one.
  await goTo(`/deliveries?open=${deliveryId(1)}`);
  await choose("State", "Failed");
  expect(path()).toBe("/deliveries?state=failed");
});

test("a delivery is listed with its webhook's name, and what it waits for in place of an attempt that nobody makes", async () => {
  const { DELIVERING, PENDING } = DeliveryState;
  const open = { attemptCount: 0, status: undefined };
  await openList([
    aDelivery({ ...open, state: DELIVERING, webhookName: "Acme orders", waitingFor: WaitingFor.HOST }),
    aDelivery({ ...open, id: deliveryId(2), state: PENDING, waitingFor: WaitingFor.RATE_LIMIT }),
    aDelivery({ ...open, id: deliveryId(3), state: DELIVERING }),
  ]);
  sees("Acme ordersWaitingWaits: the host does not answer", row("0001"));
  seesNot("Delivering", row("0001"));
  sees("WaitingWaits: the webhook’s rate limit", row("0002"));
  sees("Delivering", row("0003"));
});

test("a webhook is chosen among those that the service finds, by its name, and one that is gone is shown as such", async () => {
  const named = aWebhook({ id: 8n, name: "Acme orders", url: "https://acme.example/in" });
  const { calls } = await openList([failed(1)], webhooks(SHOP, named));
  expect(calls.searchWebhooks).toEqual([]);
  await click("Webhook", "combobox");
  await fill("Webhook", "acme");
  await later(SECOND);
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ search: "acme", pageSize: 0 });
  sees("#8 · OrderDispatched · https://acme.example/in", find("option", /Acme orders/));
  await click(/Acme orders/, "option");
  expect(path()).toBe("/deliveries?webhook=8");
  expect(value("Webhook")).toBe("Acme orders");
  await goTo("/deliveries?webhook=99");
  expect(value("Webhook")).toBe("#99 · deleted");
});

test("all failed deliveries of a customer are sent again, without a word for every user's", async () => {
  const { calls } = await openList([failed(1)], {}, "/deliveries?customer=tenant-7");
  await click("Send failed ones again…");
  sees("tenant-7", find("dialog"));
  await click("Send again", "button", find("dialog"));
  expect(calls.startReplay).toMatchObject([{ what: { value: { customer: "tenant-7" } } }]);
});
