import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { Bottleneck } from "../../../gen/webhook/v1/stats_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { BOTTLENECKS } from "../../../src/contract/stats/bottlenecks.ts";
import {
  aDelivery,
  ago,
  anIncident,
  aWebhook,
  deliveries,
  HOUR,
  incidents,
  MINUTE,
  SECOND,
  webhooks,
} from "./answers.ts";
import { all, click, fill, find, later, open, path, press, region, sees, seesNot, text } from "./page.tsx";

/** An overview as it is told once; nobody but the page ends the stream. */
const told = (overview: object) => ({ watchOverview: [{ overview }] });
const link = (name: string | RegExp) => find("link", name).getAttribute("href");

const ACME_DOWN = anIncident({ id: "i1" });
const EXPIRED = anIncident({
  id: "i2",
  cause: {
    code: "certificate_expired",
    summary: "certificate has expired",
    remedy: "renew the server's certificate",
  },
  subject: "pay.example:8443",
  webhooks: 20_000n,
  failingWebhooks: 12_000n,
  measuredWebhooks: 10_000n,
  waiting: 9n,
  nextAttempt: ago(SECOND),
  failedAttempts: 4n,
  failedAttemptsBefore: 9n,
});

test("the overview begins with what fails, a row for each cause and host, which says all that is to be known", async () => {
  await open("/", {
    ...incidents(ACME_DOWN, EXPIRED),
    ...told({ failingWebhooks: 12_003n, degradedWebhooks: 1n }),
  });
  const [first, second] = all("row", /./, find("table", "Open incidents")).slice(1) as [
    HTMLElement,
    HTMLElement,
  ];
  expect(text(first)).toBe(
    "Connection refused: shop.exampleCheck that the server runs, and its host and port.1 hr ago321,380in 3 min 120 in 5 min",
  );
  find("img", "more", first);
  expect(text(second)).toContain("12,0002+9+now 4 in 5 min");
  find("img", "fewer", second);
  expect(link("Connection refused: shop.example")).toBe("/incidents/i1");
  expect(link("12,003 webhooks failing")).toBe("/webhooks?health=failing");
  expect(link("1 webhook degraded")).toBe("/webhooks?health=degraded");
  const announced = [...document.querySelectorAll("[role=alert], [role=status], [aria-live]")];
  expect(announced.map((each) => text(each)).join()).not.toContain("refused");
});

test("more incidents than are shown, and past ones, are a link away; nothing that fails is said in words", async () => {
  await open("/", { listIncidents: { incidents: [ACME_DOWN], nextPageToken: "more" } });
  await click("All open incidents", "link");
  expect(path()).toBe("/incidents");
  await open("/");
  sees("No webhook fails.", region("Incidents"));
  find("link", "Past incidents");
});

test("the queue is one bar with the ages of the oldest deliveries, and leads to them", async () => {
  await open(
    "/",
    told({ pending: 1_380n, delivering: 2n, retrying: 7n, failed: 77n, oldestPending: ago(4 * MINUTE) }),
  );
  find("img", "1,380 pending, 2 delivering, 7 retrying");
  sees("Pending 1,380oldest 4 min ago", region("Queue"));
  expect(link("Retrying 7")).toBe("/deliveries?state=retrying");
  expect(link("77 failed, unresolved")).toBe("/deliveries?state=failed");
});

test("the figures of a period stand beside those of the period before", async () => {
  const { calls } = await open("/", {
    ...told({
      deliveredLastDay: 1_004n,
      deliveredPreviousDay: 1_001n,
      failedLastDay: 4n,
      failedPreviousDay: 8n,
    }),
    getHistory: ({ hours }) => ({
      buckets:
        hours === 0
          ? [{ delivered: 1n }, { delivered: 2n, failed: 3n }]
          : [{ start: ago(HOUR), attempts: 15n }],
    }),
  });
  const chart = region("Attempts");
  sees("1,004 delivered (1,001 before) · 4 failed finally (8 before)", chart);
  await click("1 hour", "radio");
  sees("2 delivered (1 before) · 3 failed finally (0 before)", chart);
  expect(calls.getHistory).toMatchObject([
    { hours: 24, buckets: 24 },
    { hours: 1, buckets: 60 },
    { hours: 0, buckets: 2, from: ago(2 * HOUR), to: ago(0) },
  ]);
});

test("a part of a chart is selected by keyboard, compared with as long a time before, listed, replayed and exported", async () => {
  const buckets = Array.from({ length: 24 }, (_, n) => ({ start: ago((23 - n) * HOUR), attempts: 5n }));
  const { calls } = await open("/", {
    ...deliveries(aDelivery()),
    getHistory: ({ hours }) => (hours === 0 ? { buckets: [{ failed: 5n }, { failed: 2n }] } : { buckets }),
  });
  expect(all("button", "Replay failed…")).toEqual([]);
  find("slider", "Start of the selection").focus();
  await press("{ArrowRight}{ArrowRight}");
  find("slider", "End of the selection").focus();
  await press("{ArrowLeft}");
  const [from, to] = [ago(21 * HOUR), ago(0)];
  expect(calls.getHistory.at(-1)).toMatchObject({ hours: 0, buckets: 2, from: ago(42 * HOUR), to });
  sees("2 failed finally (5 before)", region("Attempts"));
  expect(link("List deliveries")).toBe(
    "/deliveries?from=2026-11-20T14%3A00%3A00.000Z&to=2026-11-21T11%3A00%3A00.000Z",
  );
  await click("Export…");
  await click("Export");
  expect(calls.exportDeliveries).toMatchObject([{ states: [], from, to }]);
  await press("{Escape}");
  await click("Replay failed…");
  await fill("Type “replay” to confirm", "replay");
  await click("Send again");
  expect(calls.startReplay).toMatchObject([
    { what: { case: "resend", value: { states: [DeliveryState.FAILED], from, to } } },
  ]);
});

test("the overview says which parts of the service deliveries wait for, and what to change", async () => {
  await open("/", told({ bottlenecks: [Bottleneck.DATABASE, Bottleneck.LIMIT], pending: 9n }));
  for (const cause of ["database", "limit"] as const) {
    const { problem, remedy } = BOTTLENECKS[cause];
    sees(remedy, find("note", problem, find("main")));
  }
  seesNot(BOTTLENECKS.thread.problem);
});

test("the first steps are shown until an event was delivered, and the dispatch runs on request", async () => {
  for (const [registered, log, words] of [
    [[], [], "Nothing is registered here yet."],
    [[aWebhook()], [], "Nothing has been sent yet."],
  ] as const) {
    await open("/", { ...webhooks(...registered), ...deliveries(...log) });
    sees(words, region("First steps"));
  }
  sees("YOUR_API_KEY", region("Command that publishes an event"));
  const { calls } = await open("/", { ...webhooks(aWebhook()), ...deliveries(aDelivery()) });
  expect(all("region", "First steps")).toEqual([]);
  expect(calls.listDispatchRuns).toEqual([]);
  await click("Show");
  sees("None yet.", region("Last dispatch runs"));
});

test("the overview says that its figures are not live while nothing arrives, and recovers without a reload", async () => {
  const NOT_LIVE = "The figures are not live at the moment";
  const { answers } = await open("/", {
    watchOverview: () => {
      throw new DomainError("UNAVAILABLE", "the service starts");
    },
  });
  sees(NOT_LIVE);
  Object.assign(answers, told({ pending: 3n }));
  await later(5 * SECOND);
  seesNot(NOT_LIVE);
  sees("Pending 3");
  answers.watchOverview = [];
  await later(MINUTE + SECOND);
  sees(NOT_LIVE);
  sees("Pending 3");
  Object.assign(answers, told({ pending: 4n }));
  await later(MINUTE + 5 * SECOND);
  seesNot(NOT_LIVE);
  sees("Pending 4");
});
