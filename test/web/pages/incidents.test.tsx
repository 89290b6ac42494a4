import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { aDelivery, ago, anIncident, deliveries, HOUR, incidents, MINUTE } from "./answers.ts";
import { all, click, find, later, open, region, row, sees } from "./page.tsx";

const PAST = anIncident({
  id: "i2",
  subject: "past.example",
  ended: ago(10 * MINUTE),
  failingWebhooks: 0n,
  waiting: 0n,
  recovered: 1_379n,
  failed: 1n,
});
const WEBHOOK = { webhookId: 7n, name: "Orders", webhookProcess: "OrderDispatched", since: ago(HOUR) };

test("open and past incidents are listed, with what was affected and what was recovered", async () => {
  await open("/incidents", incidents(anIncident(), PAST));
  sees("1,380", row("shop.example"));
  const past = row("past.example");
  sees("1 hr ago10 min ago321,3791", past);
  await click("Connection refused: past.example", "link");
  sees(/Ended 10 minutes ago, after 50 min/);
  sees("Recovered1,379");
  await open("/incidents");
  sees("No webhook fails", region("Open"));
  sees("None yet.", region("Past"));
});

test("an incident's page says what to do, has its webhooks in pages, and is kept current until its end", async () => {
  const incident = anIncident({ failed: 2n, failingWebhooks: 2n });
  const page = (token: string) =>
    token === ""
      ? { webhooks: [{ ...WEBHOOK, waiting: 4n, failed: 2n }], nextPageToken: "next" }
      : { webhooks: [{ ...WEBHOOK, webhookId: 8n, name: "Stock", ended: ago(MINUTE), recovered: 5n }] };
  const { answers } = await open(`/incidents/${incident.id}`, {
    getIncident: ({ pageToken }) => ({ incident, ...page(pageToken) }),
  });
  sees("Check that the server runs, and its host and port.", region("What to do"));
  sees("2 of 3 webhooks failing");
  sees("Not yet", row("Orders"));
  expect(find("link", "2", row("Orders")).getAttribute("href")).toBe(
    "/deliveries?state=failed&webhook=7&from=2026-11-21T09%3A00%3A00.000Z",
  );
  await click("Show more");
  sees("1 min ago", row("Stock"));
  answers.getIncident = { incident: { ...incident, ended: ago(0), failingWebhooks: 0n } };
  await later(15_000);
  sees(/Ended .* after 1 h 0 min/);
});

test("what has failed finally in an incident is replayed: of its webhook, or of its host; not of a part of the service", async () => {
  for (const [subject, webhooks, which] of [
    ["shop.example:8443", [WEBHOOK], { webhookId: 7n }],
    ["shop.example:8443", [WEBHOOK, { ...WEBHOOK, webhookId: 8n }], { search: "shop.example:8443" }],
  ] as const) {
    const incident = anIncident({ subject, failed: 2n });
    const { calls } = await open(`/incidents/${incident.id}`, {
      ...deliveries(aDelivery()),
      getIncident: { incident, webhooks: [...webhooks] },
    });
    await click("Replay 2 failed…");
    await click("Send again");
    expect(calls.startReplay).toMatchObject([
      { what: { case: "resend", value: { states: [DeliveryState.FAILED], from: ago(2 * HOUR), ...which } } },
    ]);
  }
  const incident = anIncident({ subject: "the outbound proxy", failed: 2n });
  await open(`/incidents/${incident.id}`, {
    getIncident: { incident, webhooks: [WEBHOOK, { ...WEBHOOK, webhookId: 8n }] },
  });
  expect(all("button", /^Replay/)).toEqual([]);
});

test("an incident that does not exist is told as such", async () => {
  await open("/incidents/gone", incidents());
  sees("There is no such incident");
});
