import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { createInstalledApp } from "../../../src/keys/installed-apps.ts";
import { aWebhook } from "../../support/builders.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";
import { judgedWebhooks, REFUSED } from "../failing.ts";

const api = await useApi();
const { db } = api.context;
const { incidents } = api;

const at = (host: string) => aWebhook().at(`https://${host}/${crypto.randomUUID()}`);
const appId = (await createInstalledApp(db, "Shop")).id;
const own = await at("shop.example").with({ name: "Orders" }).having({}, { state: "retrying" }).in(db);
const ofApp = await at("shop.example").with({ installed_app_id: appId }).having({}).in(db);
const ofCustomer = await at("shop.example").with({ customer: "c-1" }).in(db);
const otherCustomer = await at("shop.example").with({ customer: "c-2" }).in(db);
const all = [own, ofApp, ofCustomer, otherCustomer];
await judgedWebhooks(db, all);
await judgedWebhooks(db, [await at("other.example").in(db)], "HTTP status 503");
const past = await at("past.example").in(db);
await judgedWebhooks(db, [past], "HTTP status 401");
await judgedWebhooks(db, [past], null);

const subjects = async (request: Parameters<typeof incidents.listIncidents>[0], of = incidents) =>
  (await of.listIncidents(request)).incidents.map(({ subject }) => subject);

test("the list has open incidents first, then past ones, with pages and filters", async () => {
  const listed = ["other.example", "shop.example", "past.example"];
  expect(await subjects({})).toEqual(listed);
  expect(await subjects({ open: true })).toEqual(listed.slice(0, 2));
  expect(await subjects({ open: false })).toEqual(listed.slice(2));
  expect(await subjects({ host: "shop.example" })).toEqual(["shop.example"]);
  expect(await subjects({ webhookId: past })).toEqual(["past.example"]);
  const pages: string[] = [];
  let pageToken = "";
  do {
    const page = await incidents.listIncidents({ pageSize: 1, pageToken });
    pages.push(...page.incidents.map(({ subject }) => subject));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  expect(pages).toEqual(listed);
});

test("an incident says why, since when, whom it concerns, what waits and what to do", async () => {
  const [incident] = (await incidents.listIncidents({ host: "shop.example" })).incidents;
  expect(incident).toMatchObject({
    cause: {
      code: "connection_refused",
      summary: "connection refused",
      remedy: "check that the server runs, and its host and port",
    },
    webhooks: 4n,
    failingWebhooks: 4n,
    customers: 2n,
    waiting: 3n,
    measuredWebhooks: 4n,
    lastError: REFUSED,
  });
  expect(incident?.ended).toBeUndefined();
  expect(incident?.nextAttempt).toBeDefined();
  const { webhooks } = await incidents.getIncident({ incidentId: incident?.id ?? "" });
  expect(webhooks).toMatchObject([
    { webhookId: own, name: "Orders", webhookProcess: "OrderDispatched", waiting: 2n },
    { webhookId: ofApp, waiting: 1n },
    { webhookId: ofCustomer, customer: "c-1" },
    { webhookId: otherCustomer, customer: "c-2" },
  ]);
  const [ended] = (await incidents.listIncidents({ open: false })).incidents;
  expect(ended).toMatchObject({ cause: { code: "http_401" }, webhooks: 1n, failingWebhooks: 0n });
  expect(ended?.ended).toBeDefined();
});

test("a key of an app or a customer sees incidents of its webhooks only, and only these count", async () => {
  const id = (await incidents.listIncidents({ host: "shop.example" })).incidents[0]?.id ?? "";
  for (const [key, webhookId] of [
    [await api.key({ installedAppId: appId }), ofApp],
    [await api.key({ customer: "c-1" }), ofCustomer],
  ] as const) {
    const as = api.as(key.secret).incidents;
    expect(await subjects({}, as)).toEqual(["shop.example"]);
    const incidentId = (await as.listIncidents({})).incidents[0]?.id ?? "";
    const { incident, webhooks } = await as.getIncident({ incidentId });
    // The operator finds what a customer names.
    expect((await incidents.getIncident({ incidentId })).incident?.id).toBe(id);
    expect(incident).toMatchObject({ webhooks: 1n, failingWebhooks: 1n, measuredWebhooks: 1n });
    expect(webhooks.map((each) => each.webhookId)).toEqual([webhookId]);
    expect(await subjects({ webhookId: own }, as)).toEqual([]);
  }
  expect(await subjects({ customer: "c-2" })).toEqual(["shop.example"]);
  expect(await subjects({ customer: "c-3" })).toEqual([]);
  const stranger = api.as((await api.key({ customer: "c-3" })).secret).incidents;
  const text = `there is no incident ${id}; list the incidents to find its id`;
  await expectRefused(stranger.getIncident({ incidentId: id }), Code.NotFound, text, "INCIDENT_NOT_FOUND");
  await expectRefused(incidents.listIncidents({ pageToken: "x" }), Code.InvalidArgument, "page_token");
});

test("for a customer an incident has ended when its own webhooks have recovered", async () => {
  await judgedWebhooks(db, [ofCustomer], null);
  const as = api.as((await api.key({ customer: "c-1" })).secret).incidents;
  expect(await subjects({ open: true }, as)).toEqual([]);
  expect(await subjects({ open: false }, as)).toEqual(["shop.example"]);
  expect(await subjects({ open: true })).toContain("shop.example");
});
