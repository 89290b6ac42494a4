import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { revokeKey } from "../../src/app/revoke-key.ts";
import { listCustomers } from "../../src/customers/customer-list.ts";
import { requiredCustomer } from "../../src/customers/customers.ts";
import { eraseStep } from "../../src/customers/erasure.ts";
import { erasePayloads, finishErasures } from "../../src/events/erase.ts";
import { fanOutStep } from "../../src/events/fan-out.ts";
import { publishEvents } from "../../src/events/publish.ts";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { judgeHealth } from "../../src/health/webhook-health.ts";
import { SeenCertificates, trackCertificates } from "../../src/incidents/host-certificates.ts";
import {
  getIncident,
  listIncidents,
  listIncidentWebhooks,
  openIncidentsOf,
} from "../../src/incidents/incidents.ts";
import { countRecovered } from "../../src/incidents/recovered.ts";
import { trackIncidents } from "../../src/incidents/track.ts";
import { type Db, openDatabase, rows } from "../../src/lib/pg/database.ts";
import { getDelivery, getSentRequest } from "../../src/log/deliveries.ts";
import { listDeliveries } from "../../src/log/list.ts";
import { searchDeliveries } from "../../src/log/search.ts";
import { sendAgain, sendManyAgain } from "../../src/log/send-again.ts";
import { readWaitingFor } from "../../src/log/waiting-for.ts";
import { removals } from "../../src/maintenance/customer-erasure.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import { readBacklog } from "../../src/queue/backlog.ts";
import { loadStopped } from "../../src/queue/changes.ts";
import { type Claimant, type ClaimedDelivery, claimPending, release } from "../../src/queue/claims.ts";
import { cancelFirst, cancelOfDeleted } from "../../src/queue/deleted-webhooks.ts";
import { endBeyond, endBeyondQuotas, endExpired } from "../../src/queue/endings.ts";
import { loadContents } from "../../src/queue/event-contents.ts";
import { readOverdueRetries } from "../../src/queue/overdue-retries.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { adoptRetries, assignGroups, leavePaused, settleGroups } from "../../src/queue/retry-groups.ts";
import { closeExpiredRuns, closeRun } from "../../src/queue/runs.ts";
import { endExpiredWorkers } from "../../src/queue/workers.ts";
import { countOutcomes, noteQueued } from "../../src/replays/outcomes.ts";
import { insertReplay } from "../../src/replays/replays.ts";
import { retentionStep } from "../../src/retention/retention.ts";
import { countOfCustomers } from "../../src/stats/customer-counts.ts";
import { countFailing, readHistory, readOverview, webhookStats } from "../../src/stats/stats.ts";
import { pauseWebhooksOf } from "../../src/webhooks/customer-pause.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { listWebhookIds, listWebhooks } from "../../src/webhooks/webhooks.ts";
import {
  claimRetries,
  foldAll,
  freshClaimant,
  makeEndpoint,
  queueMany,
  record,
  result,
  SPACING,
} from "../queue/queue.ts";
import { aKey } from "../support/builders.ts";
import { createTestDatabase } from "../support/database.ts";
import { anEvent } from "../support/new-event.ts";
import { idAt, storeDeliveries } from "../support/stored-deliveries.ts";
import { type PlanNode, plansOf, undone } from "./explained.ts";

const DAY_MS = 86_400_000;

const database = await createTestDatabase();
const db = openDatabase(database.url, { max: 3 });
let claimant: Claimant;
/** Waiting for their first results, and for those of a retry. */
let claimed: ClaimedDelivery[];
let retried: ClaimedDelivery[];
let ended: string[];
let webhookId: bigint;
/** Tables and partitions that have many rows: a small one is read from end to end with good reason. */
let large: Set<string>;
/** The scope of a key of an installed app that has one of the webhooks. */
const app = { customer: null, installedAppId: randomUUID(), processes: [], permissions: [] };

beforeAll(async () => {
  const webhooks = await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 20, events: 1_000 });
  webhookId = webhooks.at(-1) as bigint;
  claimant = await freshClaimant(db);
  const all = { limit: 200, after: 0n, excluded: [] };
  claimed = (await claimPending(db, claimant, all)).deliveries;
  await record(db, claimed.splice(0, 100), 500);
  await assignGroups(db, claimant.runId);
  retried = await claimRetries(db, claimant, 4);
  await storeMany(webhooks);
  await db("installed_apps").insert({ id: app.installedAppId, name: "app" });
  await db("webhooks").where("id", String(webhookId)).update({ installed_app_id: app.installedAppId });
  // Those of which deliveries are claimed below have endpoints, each of two webhooks with a limit.
  await db.raw(
    "insert into endpoints (rate_at) select now() - interval '1 hour' from generate_series(1, 6000)",
  );
  for (let n = 0; n < 10; n += 2) await makeEndpoint(db, webhooks.slice(n, n + 2), 1_000);
  await db.raw("analyze");
  const found = await rows<{ name: string }>(
    db,
    "select relname as name from pg_class where relkind = 'r' and reltuples >= 5000",
  );
  large = new Set(found.map(({ name }) => name));
  expect([...large]).toEqual(expect.arrayContaining(["queue", "retries", "webhooks"]));
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** As many as those of a while: the log of two days, attempts, keys, retries of other runs, statistics of a month. */
async function storeMany(webhooks: readonly bigint[]): Promise<void> {
  const now = Date.now();
  const states = ["delivered", "delivered", "delivered", "failed", "cancelled"] as const;
  ended = await storeDeliveries(
    db,
    Array.from({ length: 12_000 }, (_, n) => {
      const created = new Date(now - (n % 2) * DAY_MS - (n % 1_000));
      return {
        id: idAt(created, n),
        webhookId: webhooks[n % 20] as bigint,
        state: states[n % 5] ?? "delivered",
        finished: created,
      };
    }),
  );
  const [other] = (await rows<{ id: number }>(
    db,
    "insert into runs (workflow_id, first_run_id, lease_until) values ('other', 'r', now() + interval '1 day') returning id",
  )) as [{ id: number }];
  await db.raw(
    `insert into events (id, api_key_id, idempotency_key, process, user_id, occurred)
      select id, gen_random_uuid(), 'k', 1, 'u', now() from deliveries;
    insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
      select api_key_id, idempotency_key, id, '\\x00' from events;
    insert into search_terms (term, event_id) select hashtextextended(id::text, 0), id from events;
    insert into attempts (delivery_id, number, started, duration_ms) select id, 1, now(), 5 from deliveries;
    insert into retries (id, event_id, webhook_id, run_id, attempts, round_start, due)
      select new_delivery_id(id), id, webhook_id, ${other.id}, 1, 0, now() from deliveries;
    insert into rollup_minutes select w, date_trunc('minute', now()) - interval '1 minute' * n, 1, 1, 0, 0, 5, 5, '{1}'
      from generate_series(0, 20) w, generate_series(0, 1499) n;
    insert into rollup_hours select w, date_trunc('hour', now()) - interval '1 hour' * n, 1, 1, 0, 0, 5, 5, '{1}'
      from generate_series(0, 20) w, generate_series(0, 719) n;
    insert into webhook_health (webhook_id, health, first_failure, last_failure)
      select id, 'failing', now(), now() from webhooks;
    insert into webhooks (process, url, target_url, api_key_id, secret)
      select 2 + n % 2, url, url, gen_random_uuid(), '' from generate_series(1, 20000) n,
        lateral (select 'https://other.example/' || n as url) u;
    insert into webhook_health (webhook_id, health, first_failure, last_failure)
      select -n, 'failing', now(), now() from generate_series(1, 40000) n;
    insert into incidents (cause, subject, opened, closed)
      select 'dns_failed', 'host-' || n, now(), now() from generate_series(1, 6000) n;
    insert into incident_webhooks (incident_id, shown_id, webhook_id, since, ended, error, first_delivery)
      select gen_random_uuid(), gen_random_uuid(), -n, now(), now(), 'error', gen_random_uuid() from generate_series(1, 40000) n`,
  );
  await foldAll(db);
}

/** The large tables that the query's own statements would read from end to end, by PostgreSQL's plans for them. */
async function scannedTables(query: (db: Db) => Promise<unknown>, on = db): Promise<string[]> {
  const plans = await plansOf(on, query);
  expect(plans.length).toBeGreaterThan(0);
  const scanned: string[] = [];
  for (const plan of plans) collect(plan, scanned);
  return scanned;
}

function collect(node: PlanNode, scanned: string[]): void {
  const table = node["Relation Name"] ?? "";
  if (node["Node Type"] === "Seq Scan" && large.has(table)) scanned.push(table);
  for (const child of node.Plans ?? []) collect(child, scanned);
}

const results = (deliveries: readonly ClaimedDelivery[]) =>
  deliveries.map((delivery, n) => result(delivery, n % 2 === 0 ? 200 : 500));

const anOrder = () => anEvent({ searchable: ["SO-1"] });

describe("no table that grows is read from end to end", () => {
  const queries: Record<string, (db: Db) => Promise<unknown>> = {
    "publishing, for the first time and again": async (trx) => {
      const events = [anOrder(), anOrder()];
      await publishEvents(trx, events);
      await publishEvents(trx, events);
    },
    "sending a test event": (trx) =>
      queueTestEvent(trx, "everything", { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" }),
    "fanning out": async (trx) => {
      await trx("fan_out").insert({ event_id: randomUUID(), process: 1, revision: 9, remaining: 20 });
      await fanOutStep(trx);
    },
    "claiming pending deliveries, some of endpoints": async (trx) => {
      const { deliveries } = await claimPending(trx, claimant, { limit: 500, after: 0n, excluded: [] });
      expect(deliveries.filter(({ webhook }) => webhook.endpointId).length).toBeGreaterThan(0);
    },
    "claiming a retry group": (trx) => claimRetries(trx, claimant, 64),
    "giving back": (trx) => release(trx, claimant.workerId, [...claimed, ...retried]),
    "recording attempts": (trx) => recordAttempts(trx, results([...claimed, ...retried]), SPACING),
    "loading what events carry": async (trx) => {
      const ids = await trx("events").limit(50).pluck("id");
      await loadContents(trx, ids, { maxBytes: 1_000_000, alone: true });
    },
    "listing the undelivered": (trx) => assignGroups(trx, claimant.runId),
    "looking at a group": (trx) => settleGroups(trx, [{ runId: claimant.runId, group: 1 }]),
    "adopting retries": async (trx) => {
      await trx("runs").where({ id: claimant.runId }).update({ closed: new Date() });
      await adoptRetries(trx, (await freshClaimant(trx)).runId);
    },
    "leaving what is paused": (trx) => leavePaused(trx, claimant.runId),
    "failing what is beyond a webhook's limit": async (trx) => expect(await endBeyond(trx, 900, 50)).toBe(50),
    "closing a run that has retries left": (trx) => closeRun(trx, claimant.runId),
    "abandoning a run": (trx) => closeRun(trx, claimant.runId, true),
    "looking which webhooks are stopped": (trx) => loadStopped(trx, [{ id: webhookId, revision: 1n }]),
    "closing expired runs": async (trx) => {
      await trx("runs")
        .where({ id: claimant.runId })
        .update({ lease_until: new Date(0) });
      expect(await closeExpiredRuns(trx)).toBe(1);
    },
    "ending expired workers": (trx) => endExpiredWorkers(trx),
    "deleting a webhook, and cancelling what it leaves": async (trx) => {
      await deleteWebhook(trx, webhookId, cancelFirst);
      await cancelOfDeleted(trx);
    },
    "sending again": (trx) => sendAgain(trx, "everything", ended[0] as string, 30),
    "sending many again": (trx) =>
      sendManyAgain(trx, "everything", { webhookId, states: ["failed"] }, { limit: 100, retentionDays: 30 }),
    "looking at a delivery and what it sends": async (trx) => {
      await getDelivery(trx, "everything", ended[0] as string);
      await getSentRequest(trx, app, ended[0] as string);
    },
    "searching for a value, an id and a host": async (trx) => {
      const uuid = ended[0] as string;
      for (const scope of ["everything", app] as const)
        for (const search of [
          { text: "SO-1" },
          { text: uuid, uuid },
          { text: "a.example", host: "a.example" },
        ])
          await searchDeliveries(trx, scope, {}, 101, search);
    },
    "searching for what many events have": async (trx) => {
      for (const filter of [{}, { after: ended[0] as string }])
        await searchDeliveries(trx, "everything", filter, 101, { text: "u" });
    },
    "listing deliveries": async (trx) => {
      const after = ended[0] as string;
      const from = new Date(Date.now() - 3_600_000);
      const recent = { states: ["failed", "cancelled"] as const, from };
      const failed = { webhookId, states: ["failed"] as const };
      for (const filter of [{}, failed, { process: 1 }, { after }, { process: 1, after }, recent])
        await listDeliveries(trx, "everything", filter, 101);
    },
    "listing an app's deliveries": async (trx) => {
      const states = ["failed"] as const;
      for (const filter of [{}, { webhookId, states }, { process: 1, states }, { eventId: randomUUID() }])
        await listDeliveries(trx, app, filter, 101);
    },
    "erasing payloads of a user": (trx) => erasePayloads(trx, "nobody", 1_000),
    "erasing what was claimed": async (trx) => {
      const eventIds = claimed.slice(0, 3).map(({ eventId }) => eventId);
      await trx("settings").insert({ name: "payloads_erased_while_claimed", value: eventIds.join(",") });
      await finishErasures(trx);
    },
    "an app's overview, and histories": async (trx) => {
      await readOverview(trx, app);
      const end = new Date();
      for (const hours of [24, 168]) {
        const period = { start: new Date(end.getTime() - hours * 3_600_000), end };
        for (const scope of ["everything", app] as const) await readHistory(trx, scope, 24, period);
      }
    },
    "a page of an app's webhooks": (trx) => listWebhookIds(trx, app, null, { after: 5n, limit: 50 }),
    "a page of all webhooks": (trx) => listWebhooks(trx, { after: 5n, limit: 50 }),
    "how some webhooks did": (trx) => webhookStats(trx, [webhookId, 7n]),
    "folding statistics": async (trx) => {
      await recordAttempts(trx, results(claimed), SPACING);
      expect(await foldDeltas(trx)).toBe(1);
    },
    "counting a webhook's overdue retries": (trx) => readOverdueRetries(trx, webhookId),
    "judging the health of webhooks": (trx) => judgeHealth(trx, [webhookId]),
    "warning about certificates": async (trx) => {
      const certificates = new SeenCertificates();
      certificates.note("example.com", new Date(Date.now() + DAY_MS), false);
      await certificates.store(trx);
      expect(await trackCertificates(trx)).not.toEqual([]);
      await trackCertificates(trx);
    },
    "counting outcomes of replays": async (trx) => {
      const wanted = { apiKeyId: (await aKey().in(trx)).id, idempotencyKey: null, kind: "resend" } as const;
      const { id } = await insertReplay(trx, "everything", { ...wanted, filter: { states: ["failed"] } }, 30);
      await noteQueued(
        trx,
        id,
        claimed.slice(0, 50).map((each) => each.id),
      );
      await trx("replay_steps" as never).update({ check_at: new Date(0) } as never);
      expect(await countOutcomes(trx)).toBe(1);
    },
    "what deliveries wait for, and their incidents": async (trx) => {
      const { deliveries } = await listDeliveries(trx, "everything", { webhookId }, 100);
      await readWaitingFor(trx, deliveries);
      await openIncidentsOf(trx, "everything", [webhookId]);
      for (const scope of ["everything", app] as const) await countFailing(trx, scope, webhookId);
    },
    "tracking incidents": async (trx) => {
      const since = new Date();
      const about = {
        webhookId,
        targetUrl: "https://example.com/",
        name: null,
        application: null,
        customer: null,
        was: "healthy",
        since,
        wasSince: since,
      } as const;
      const judged = (lastError: string) => [{ ...about, health: "failing", lastError } as const];
      await trackIncidents(trx, judged("HTTP status 401"));
      const page = { after: null, limit: 10 };
      for (const filter of [{}, { open: false }, { subject: "other.example" }])
        await listIncidents(trx, "everything", filter, page);
      for (const scope of ["everything", app] as const) {
        const [incident] = await listIncidents(trx, scope, { webhookId, open: true }, page);
        const id = incident?.id as string;
        await getIncident(trx, scope, id);
        await listIncidentWebhooks(trx, scope, id, page);
      }
      await trackIncidents(trx, [{ ...about, was: "failing", health: "healthy", lastError: null }]);
      await trx("incident_webhooks").update({ check_at: since });
      await countRecovered(trx);
    },
    "reading the backlog": (trx) => readBacklog(trx, { after: 0n, maxWebhooks: 10, maxCounted: 100 }),
    "applying the retention": (trx) => retentionStep(trx, trx, 30),
    "failing what has expired": (trx) => endExpired(trx, idAt(new Date(Date.now() - 3_600_000)), 1_000),
  };

  test.each(Object.entries(queries))("by %s", async (_what, query) => {
    expect(await scannedTables(query)).toEqual([]);
  });

  test("by the overview of all, but that it counts what is open and fails", () =>
    undone(db, async (trx) => {
      // Of webhooks that succeed there are no rows.
      await trx.raw("delete from webhook_health where webhook_id < 0; analyze webhook_health");
      const scanned = await scannedTables((inner) => readOverview(inner, "everything"), trx);
      const counted = ["queue", "retries", "webhook_health"];
      expect(scanned.filter((table) => !counted.includes(table))).toEqual([]);
    }));

  test("by what customers need, of whom there are many", () =>
    undone(db, async (trx) => {
      await trx.raw(
        `insert into customers (id, display_name, pending_quota)
          select 'c' || n, case when n % 20 = 0 then 'Shop ' || n end, case when n % 100 = 0 then 5 end
          from generate_series(1, 20000) n;
        update webhooks set customer = 'c' || id;
        insert into api_keys (id, name, prefix, secret_sha256, permissions, customer)
          select gen_random_uuid(), 'k', 'k', decode(md5(n::text), 'hex'), '{1}', 'c' || n from generate_series(1, 20000) n;
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, payload)
          select new_delivery_id(id), api_key_id, 'k', 1, 'u' || right(id::text, 4), now(), '{}' from events;
        analyze`,
      );
      for (const table of ["customers", "api_keys"]) large.add(table);
      const customers = Array.from({ length: 50 }, (_, n) => `c${n}`);
      const queries: ((on: Db) => Promise<unknown>)[] = [
        (on) => listCustomers(on, { after: null, search: "", limit: 50 }),
        (on) => listCustomers(on, { after: "c1", search: "c12", limit: 50 }),
        (on) => requiredCustomer(on, "u0001"),
        (on) => countOfCustomers(on, "everything", customers),
        (on) => countOfCustomers(on, { ...app, customer: "c7" }, ["c7"]),
        (on) => endBeyondQuotas(on, 50),
        (on) => pauseWebhooksOf(on, "c7", true),
        (on) => eraseStep(on, "c7", removals(revokeKey)),
      ];
      await trx("customers")
        .where({ id: "c7" })
        .update({ erasure_started: trx.fn.now(), erasure_actor: "{}" });
      const scanned: string[][] = [];
      for (const query of queries) scanned.push(await scannedTables(query, trx));
      expect(scanned).toEqual(queries.map(() => []));
    }));
});
