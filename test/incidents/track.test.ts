import { expect, test } from "vitest";
import { customerScope } from "../../src/calls/scope.ts";
import { getIncident, listIncidents, listIncidentWebhooks } from "../../src/incidents/incidents.ts";
import { countRecovered, deleteOldIncidents } from "../../src/incidents/recovered.ts";
import { leaveForgotten } from "../../src/incidents/track.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { type AttemptResult, recordAttempts } from "../../src/queue/results.ts";
import { adoptRetries, assignGroups } from "../../src/queue/retry-groups.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import {
  claim,
  claimRetries,
  freshClaimant,
  NO_WAIT,
  openQueueDatabase,
  queueEvents,
  queueMany,
  result,
} from "../queue/queue.ts";
import { aWebhook } from "../support/builders.ts";
import { judgedWebhooks, REFUSED } from "./failing.ts";

const db = await openQueueDatabase();
const FOUND = { all: {}, first: { after: null, limit: 100 } };

/** Webhooks of a host with pending deliveries. */
const webhooksOf = (host: string, webhooks = 1, events = 1) =>
  queueMany(db, { urlPrefix: `https://${host}/`, webhooks, events });

/** Makes an attempt of everything that is pending or waits for a retry, with the same result, and judges. */
async function attemptAll(outcome: Partial<AttemptResult>): Promise<void> {
  const claimant = await freshClaimant(db);
  await db("retries").update({ run_id: null });
  await adoptRetries(db, claimant.runId);
  await assignGroups(db, claimant.runId);
  await db("run_groups").update({ group_number: 1 });
  const claimed = [...(await claim(db, claimant)), ...(await claimRetries(db, claimant))];
  const results = claimed.map((delivery) => ({
    ...result(delivery, outcome.status ?? 0),
    status: null,
    ...outcome,
  }));
  await recordAttempts(db, results, NO_WAIT);
  while ((await foldDeltas(db)) > 0);
}
const failAll = (error = REFUSED) => attemptAll({ delivered: false, error });
const answerAll = (status: number) => attemptAll({ delivered: status === 200, status, error: null });

/** Makes what has happened so far so much older. */
async function letPass(seconds: number): Promise<void> {
  const tables: Record<string, string[]> = {
    webhook_health: ["since", "first_failure", "last_failure", "last_success", "error_read"],
    incidents: ["opened", "closed"],
    incident_webhooks: ["since", "ended", "differs", "check_at"],
  };
  for (const [table, columns] of Object.entries(tables)) {
    const earlier = columns.map((column) => `${column} = ${column} - make_interval(secs => :seconds)`);
    await db.raw(`update ${table} set ${earlier.join(", ")}`, { seconds });
  }
}

const list = () => listIncidents(db, "everything", FOUND.all, FOUND.first);
const only = async () => {
  const [incident, ...others] = await list();
  expect(others).toEqual([]);
  if (!incident) throw new Error("there is no incident");
  return incident;
};

test("webhooks of a host that fail with one cause are one incident with what waits for it", async () => {
  const ids = await webhooksOf("shop.example", 300, 2);
  await failAll();
  const [health] = await db("webhook_health");
  const incident = await only();
  expect(incident).toMatchObject({
    cause: "connection_refused",
    subject: "shop.example",
    ended: null,
    webhooks: 300n,
    failingWebhooks: 300n,
    measuredWebhooks: 300n,
    customers: 0n,
    waiting: 600n,
    failed: 0n,
    recovered: 0n,
    failedAttempts: 600n,
    failedAttemptsBefore: 0n,
    lastError: REFUSED,
  });
  expect(incident.since).toEqual(health.since);
  expect([incident.nextAttempt]).toEqual(await db("retries").orderBy("due").limit(1).pluck("due"));
  const { id } = incident;
  const first = await listIncidentWebhooks(db, "everything", id, { after: null, limit: 2 });
  expect(first).toMatchObject([
    { id: ids[0], process: 1, url: "https://shop.example/1", waiting: 2n, ended: null },
    { id: ids[1] },
  ]);
  const rest = await listIncidentWebhooks(db, "everything", id, { after: ids[297] as bigint, limit: 9 });
  expect(rest.map((each) => each.id)).toEqual(ids.slice(298));
});

test("an incident per cause and host, and one for all hosts whose token endpoint or service fails", async () => {
  await webhooksOf("a.example");
  await failAll();
  await webhooksOf("b.example:8443");
  await answerAll(503);
  await webhooksOf("c.example");
  await webhooksOf("d.example");
  await failAll("token endpoint login.example answered 401; see the log of the token endpoint");
  const found = await list();
  expect(found.map(({ cause, subject, failingWebhooks }) => [cause, subject, failingWebhooks])).toEqual([
    ["token_endpoint", "login.example", 2n],
    ["http_5xx", "b.example:8443", 1n],
    ["connection_refused", "a.example", 1n],
  ]);
});

test("an incident ends when its last webhook recovers, and then tells what failed and what was recovered", async () => {
  const [first, second] = await webhooksOf("shop.example", 2, 3);
  await failAll();
  await failAll();
  await failAll();
  // The fourth attempt is the last one of a round: they fail for good.
  await failAll();
  expect(await only()).toMatchObject({ failingWebhooks: 2n, waiting: 0n, failed: 6n, nextAttempt: null });
  await queueEvents(db, [first, second] as bigint[], 2);
  await failAll();
  expect(await only()).toMatchObject({ waiting: 4n, failed: 6n });
  await queueEvents(db, [first] as bigint[]);
  const [delivery] = await claim(db);
  await recordAttempts(db, [result(delivery as never, 200)], NO_WAIT);
  await foldDeltas(db);
  expect(await only()).toMatchObject({ ended: null, webhooks: 2n, failingWebhooks: 1n, waiting: 2n });
  await answerAll(200);
  const { ended } = await only();
  expect(ended).toBeInstanceOf(Date);
  await letPass(60);
  expect(await countRecovered(db)).toBe(2);
  expect(await only()).toMatchObject({
    webhooks: 2n,
    failingWebhooks: 0n,
    waiting: 0n,
    failed: 6n,
    recovered: 5n,
  });
});

test("deliveries that are sent again after an incident count as recovered, and are counted less and less often", async () => {
  const ids = await webhooksOf("shop.example", 1, 2);
  for (let n = 0; n < 4; n += 1) await failAll();
  await queueEvents(db, ids);
  await answerAll(200);
  await letPass(60);
  await countRecovered(db);
  // The delivery of the success was published after the incident began.
  expect(await only()).toMatchObject({ failed: 2n, recovered: 1n });
  expect(await countRecovered(db)).toBe(0);
  await db("deliveries").update({ outcome: "delivered" });
  await letPass(120);
  await countRecovered(db);
  expect(await only()).toMatchObject({ failed: 0n, recovered: 3n });
  await letPass(100_000);
  expect(await countRecovered(db)).toBe(0);
});

test("a webhook stays in its incident while its causes alternate, and moves after a minute of another one", async () => {
  const ids = await webhooksOf("shop.example");
  await failAll();
  await letPass(20);
  await answerAll(500);
  await letPass(50);
  await failAll();
  await letPass(20);
  await queueEvents(db, ids);
  await answerAll(500);
  expect(await only()).toMatchObject({ cause: "connection_refused", failingWebhooks: 1n });
  await letPass(61);
  await queueEvents(db, ids);
  await answerAll(500);
  expect((await list()).map(({ cause, ended }) => [cause, ended !== null])).toEqual([
    ["http_5xx", false],
    ["connection_refused", true],
  ]);
});

test("an incident that begins again within five minutes is the same one; later it is another one", async () => {
  const ids = await webhooksOf("shop.example");
  await failAll();
  const { id, since } = await only();
  await answerAll(200);
  for (const minutes of [4, 6]) {
    await letPass(minutes * 60);
    await queueEvents(db, ids);
    await failAll();
    if (minutes === 4) {
      expect(await only()).toMatchObject({ id, ended: null, webhooks: 1n, failingWebhooks: 1n });
      expect((await only()).since.getTime()).toBeLessThan(since.getTime());
    }
    await answerAll(200);
  }
  expect(await list()).toHaveLength(2);
});

test("an incident ends for webhooks that were deleted or forgotten, and is deleted after the retention", async () => {
  const [webhookId] = await webhooksOf("shop.example", 2);
  await failAll();
  expect(await db.transaction(leaveForgotten)).toEqual([]);
  await deleteWebhook(db, webhookId as bigint, cancelFirst);
  expect(await db.transaction(leaveForgotten)).toMatchObject([{ webhookId, change: "left" }]);
  expect(await only()).toMatchObject({ failingWebhooks: 1n });
  await db("webhook_health").delete();
  const { id } = await only();
  expect(await db.transaction(leaveForgotten)).toMatchObject([{ id, change: "left" }]);
  await letPass(29 * 86_400);
  expect(await deleteOldIncidents(db, 30)).toBe(0);
  await letPass(2 * 86_400);
  expect(await deleteOldIncidents(db, 30)).toBe(1);
  expect(await db("incident_webhooks")).toEqual([]);
  expect(await getIncident(db, "everything", id)).toBeUndefined();
});

const unresolved = (host: string) =>
  `host name does not resolve: ${host} does not exist (NXDOMAIN); check the host in the URL`;
const failedLookup = (host: string) => `DNS lookup of ${host} timed out after 5 s; check the name servers`;
/** Webhooks of hosts whose names fail, of the operator or of a customer. */
async function unresolvedHosts(hosts: readonly string[], customer: string | null, error = unresolved) {
  for (const host of hosts) {
    const webhook = await aWebhook().at(`https://${host}/${crypto.randomUUID()}`).with({ customer }).in(db);
    await judgedWebhooks(db, [webhook], error(host.replace(/:.*/, "")));
  }
}
const subjects = async () => (await list()).filter(({ ended }) => !ended).map(({ subject }) => subject);

test.each([
  ["two hosts of a domain, whatever their ports", ["a.shop.test", "b.shop.test:8443"], "hosts of shop.test"],
  ["the domain itself and a host in it", ["shop.test", "b.c.shop.test"], "hosts of shop.test"],
  ["one host with two ports", ["a.shop.test", "a.shop.test:8443"], undefined],
  ["hosts of two domains", ["a.shop.test", "b.stock.test"], undefined],
  ["domains below a suffix of a country", ["shop.co.uk", "stock.co.uk"], undefined],
  ["domains below a suffix of a company", ["shop.github.io", "stock.github.io"], undefined],
  ["hosts below a suffix of a country", ["a.shop.co.uk", "b.shop.co.uk"], "hosts of shop.co.uk"],
  ["names without a domain", ["shop", "stock"], undefined],
])("names that do not resolve: %s", async (_of, hosts, zone) => {
  await unresolvedHosts(hosts, null);
  expect((await subjects()).sort()).toEqual([...new Set([hosts[0], zone ?? hosts[1]])].sort());
  await unresolvedHosts(hosts, "of-a-customer", failedLookup);
  expect((await subjects()).filter((subject) => subject === zone)).toHaveLength(zone ? 2 : 0);
});

test("the webhooks of a domain are one incident after a minute, and stay so until its last host recovers", async () => {
  const hosts = ["a.shop.test", "b.shop.test", "c.shop.test"];
  const ids = await Promise.all(hosts.map((host) => aWebhook().at(`https://${host}/`).in(db)));
  const fail = async () => {
    for (const [n, id] of ids.entries()) await judgedWebhooks(db, [id], unresolved(hosts[n] as string));
  };
  await fail();
  expect((await subjects()).sort()).toEqual(["a.shop.test", "hosts of shop.test"]);
  await fail();
  await letPass(61);
  await fail();
  expect(await subjects()).toEqual(["hosts of shop.test"]);
  expect((await list())[0]).toMatchObject({ failingWebhooks: 3n, cause: "dns_not_found" });
  await judgedWebhooks(db, ids.slice(1), null);
  await letPass(61);
  await judgedWebhooks(db, ids.slice(0, 1), unresolved("a.shop.test"));
  expect(await list()).toMatchObject([
    { subject: "hosts of shop.test", failingWebhooks: 1n },
    { failingWebhooks: 0n },
  ]);
  // Other causes lie in each host.
  await unresolvedHosts(["d.shop.test", "e.shop.test"], null, () => REFUSED);
  expect((await subjects()).sort()).toEqual(["d.shop.test", "e.shop.test", "hosts of shop.test"]);
});

test("hosts of other customers do not make an incident of a domain", async () => {
  await unresolvedHosts(["a.shop.test"], "acme");
  await unresolvedHosts(["b.shop.test"], "globex");
  await unresolvedHosts(["c.shop.test"], null);
  expect((await subjects()).sort()).toEqual(["a.shop.test", "b.shop.test", "c.shop.test"]);
  await unresolvedHosts(["d.shop.test"], "acme");
  const seen = await Promise.all(
    ["acme", "globex"].map((customer) => listIncidents(db, customerScope(customer), FOUND.all, FOUND.first)),
  );
  expect(seen.map((each) => each.map(({ subject }) => subject).sort())).toEqual([
    ["a.shop.test", "hosts of shop.test"],
    ["b.shop.test"],
  ]);
});
