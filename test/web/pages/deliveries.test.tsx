import { expect, test } from "vitest";
import { type Delivery, DeliveryState, ExportFormat } from "../../../gen/webhook/v1/delivery_pb.ts";
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
  READER,
  SECOND,
  signedIn,
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
  tab,
  text,
  value,
} from "./page.tsx";

/** How often the list is read again. */
const REFRESH = 4 * SECOND;
const SHOP = aWebhook();
const PAUSED = aWebhook({ id: 9n, url: "https://paused.example/hooks", paused: ago(HOUR) });

/** The list of these deliveries, of webhooks that are there. */
const openList = (shown: Delivery[], answers: Answers = {}, at = "/deliveries", width = 1280) =>
  open(at, { ...webhooks(SHOP, PAUSED), ...deliveries(...shown), ...answers }, { width });

/** The numbers of the deliveries that are listed, from the top. */
const listed = () => all("link", /^01a2b3c4-0000/).map((link) => Number(text(link).slice(-4)));
const tick = (n: number) => click(`Select delivery ${deliveryId(n)}`, "checkbox");
const failed = (n: number, webhookId = 7n) => aDelivery({ id: deliveryId(n), webhookId });

test("the focus stays on the button that led to the last page or the first", async () => {
  const pages = ["", "middle", "last"];
  await openList([], {
    listDeliveries: ({ pageToken }) => {
      const n = pages.indexOf(pageToken);
      const previousPageToken = n === 2 ? "middle" : n === 1 ? "first" : "";
      return { deliveries: [failed(n)], nextPageToken: pages[n + 1] ?? "", previousPageToken };
    },
  });
  const button = (name: string) => find("button", name);
  button("Older").focus();
  await press("{Enter}");
  await press("{Enter}");
  expect(listed()).toEqual([2]);
  expect(button("Older").ariaDisabled).toBe("true");
  expectFocus(button("Older"));
  await press("{Enter}");
  expect(listed()).toEqual([2]);
  await tab({ shift: true });
  await tab({ shift: true });
  await press("{Enter}");
  expect(listed()).toEqual([0]);
  expect(button("Newest").ariaDisabled).toBe("true");
  expectFocus(button("Newest"));
  expect(path()).toBe("/deliveries");
});

test("deliveries are found by when they were created, in the viewer's zone", async () => {
  const { calls } = await openList([failed(1)]);
  await choose("Created", "The last 24 hours");
  expect(calls.listDeliveries.at(-1)?.from?.seconds).toBe(ago(24 * HOUR).seconds);
  await choose("Created", "From … to …");
  // Midnight in Berlin, where it is an hour later than in UTC.
  expect(path()).toBe("/deliveries?from=2026-11-19T23%3A00%3A00.000Z");
});

test("what takes a moment away leaves the focus on its field, and both fields stay", async () => {
  await openList([], {}, "/deliveries?from=2026-01-01T00:00:00.000Z&to=2026-01-02T00:00:00.000Z");
  for (const moment of ["From", "To"]) {
    find("button", `Clear: ${moment}`).focus();
    await press("{Enter}");
    expectFocus(find("button", moment));
  }
  expect(value("Created")).toBe("From … to …");
  await press("{Enter}");
  find("button", "Take this time").focus();
  await press("{Enter}");
  await later(SECOND);
  expectFocus(find("button", "To"));
});

test("an id in an old address is searched for, and a search says what it compares", async () => {
  const { calls } = await openList([], {}, "/deliveries?id=so-2026-77");
  expect(path()).toBe("/deliveries?search=so-2026-77");
  expect(calls.listDeliveries.at(-1)?.search).toBe("so-2026-77");
  sees("A search compares whole values");
});

test("a search keeps the space after which the user pauses and goes on typing", async () => {
  await openList([failed(1)]);
  find("searchbox", "Search").focus();
  await press("JD0146 ");
  await later(SECOND);
  expect(path()).toBe("/deliveries?search=JD0146");
  await press("000");
  await later(SECOND);
  expect(path()).toBe("/deliveries?search=JD0146+000");
  expect(value("Search")).toBe("JD0146 000");
});

test("what comes while one reads is told, moves nothing, and is shown when asked for", async () => {
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

test("while failures of another filter are counted, those of the previous one are not shown", async () => {
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

test("a webhook registered after the list was read is named, offered within a minute, and deleted only once it is", async () => {
  const known = [SHOP];
  const second = aWebhook({ id: 8n, url: "https://second.example/hooks" });
  const label = "#8 · OrderDispatched · https://second.example/hooks";
  const { answers } = await openList([], webhooks(...known));
  answers.getWebhook = { webhook: second };
  await goTo("/deliveries?webhook=8");
  expect(value("Webhook")).toBe(label);
  await goTo("/deliveries?webhook=7");
  Object.assign(answers, webhooks(SHOP, second));
  await later(MINUTE);
  await choose("Webhook", /https:\/\/second\.example/);
  expect(value("Webhook")).toBe(label);
  Object.assign(answers, webhooks(SHOP));
  await later(MINUTE);
  expect(value("Webhook")).toBe("#8 · deleted");
  // A damaged address filters nothing, and shows no filter.
  await goTo("/deliveries?webhook=7x");
  expect(value("Webhook")).toBe("");
});

test("deliveries unfold to their attempts in place, by keyboard, follow them, and stay unfolded on a phone", async () => {
  const attempts = [
    { number: 1, durationMs: 40, status: 502 },
    { number: 2, durationMs: 15_000, error: "no response within 15 s" },
  ];
  const retrying = aDelivery({ state: DeliveryState.RETRYING, attemptCount: 2, nextAttempt: ahead(HOUR) });
  const shown = [retrying, failed(2)];
  await openList(shown, { getDelivery: () => ({ delivery: shown[0], attempts }) });
  const button = (n: number) => find("button", `Attempts of delivery ${deliveryId(n)}`);
  const lines = (n: number) =>
    all("listitem", undefined, find("list", `Attempts of delivery ${deliveryId(n)}, newest first`));
  expect(button(1).ariaExpanded).toBe("false");
  button(1).focus();
  await press("{Enter}");
  expect(lines(1).map((line) => text(line))).toEqual([
    expect.stringMatching(/Attempt 2.*No response within 15 s.*took 15 s/),
    expect.stringMatching(/Attempt 1.*502 Bad Gateway.*took 40 ms/),
  ]);
  expect(button(1).ariaExpanded).toBe("true");
  expectFocus(button(1));
  await click(button(2));
  attempts.push({ number: 3, durationMs: 12, status: 200 });
  shown[0] = aDelivery({ state: DeliveryState.DELIVERED, attemptCount: 3 });
  await later(REFRESH);
  expect(lines(1)).toHaveLength(3);
  sees(/Attempt 3.*200 OK.*took 12 ms/, lines(1)[0]);
  expect(lines(2)).toHaveLength(3);
  await press("{Enter}");
  expect(button(2).ariaExpanded).toBe("false");
});

test("who may only read sees no way to send again", async () => {
  await openList([failed(1)], { getSession: signedIn({ permissions: READER }) });
  expect(listed()).toEqual([1]);
  expect(all("checkbox")).toEqual([]);
  expect(all("button", /again/)).toEqual([]);
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
  await click("Cancel");
  // One that has failed once more can be sent again.
  shown[0] = failed(1);
  await later(REFRESH);
  await tick(1);
  await click("Send again…");
  await click("Send 1 delivery again");
  sees("1 delivery will be sent with the next dispatch");
  expect(sent()).toEqual([1, 2, 3, 2, 1]);
});

test("deliveries of paused webhooks are said to wait for them, not to be sent with the next dispatch", async () => {
  await openList([failed(1), failed(2, 9n), failed(3, 9n)]);
  for (const n of [1, 2, 3]) await tick(n);
  await click("Send again…");
  await click("Send 3 deliveries again");
  sees("1 delivery will be sent with the next dispatch. 2 deliveries wait until the webhook is resumed.");
});

test("a replay of every webhook's deliveries says so, and takes a typed word", async () => {
  await openList([failed(1)], {}, "/deliveries?state=cancelled&last=24h");
  await click("Send all of these again…");
  sees("This covers every webhook and every user");
  const dialog = find("dialog");
  expect(isDisabled("Send again", dialog)).toBe(true);
  await fill("Type “replay” to confirm", "replay");
  expect(isDisabled("Send again", dialog)).toBe(false);
});

test.each([
  { count: 3, title: "Send at least 3 deliveries again?", words: "Counted back to 2 Jan 2026" },
  { count: 0, title: "Send them again?", words: "No delivery found back to 2 Jan 2026" },
])(
  "a count that ends early after $count deliveries says so, and does not hold up the replay",
  async ({ count, title, words }) => {
    const searchedBackTo = { seconds: BigInt(Date.UTC(2026, 0, 2, 3, 4, 5) / SECOND) };
    const { calls } = await openList(
      [],
      {
        listDeliveries: ({ pageSize }) =>
          pageSize === 1_000
            ? {
                deliveries: Array.from({ length: count }, () => ({})),
                nextPageToken: "older",
                searchedBackTo,
              }
            : { deliveries: [failed(1)] },
      },
      "/deliveries?webhook=7",
    );
    await click("Send failed ones again…");
    const dialog = find("dialog", title);
    sees(words, dialog);
    seesNot("No delivery matches", dialog);
    sees("Deliveries of paused webhooks wait", dialog);
    await click("Send again", "button", dialog);
    expect(calls.startReplay).toHaveLength(1);
  },
);

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

test("an export survives a failed refresh of the list behind it, Escape and a click beside it", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { answers } = await openList([failed(1)], {
    exportDeliveries: async function* () {
      yield { exported: 0n };
      await promise;
      yield { exported: 1n, lines: "id\n" };
    },
  });
  await tick(1);
  await click("Export…");
  await click("Export", "button", find("dialog"));
  const { listDeliveries } = answers;
  answers.listDeliveries = new DomainError("RESOURCE_EXHAUSTED", "too many calls");
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
  answers.listDeliveries = listDeliveries;
  await later(REFRESH);
  seesNot("Too many calls.");
  await click("Close", "button", find("dialog").querySelector("form") as HTMLElement);
  sees("1 selected");
});
