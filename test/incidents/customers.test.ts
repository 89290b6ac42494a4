import { expect, test } from "vitest";
import type { Scope } from "../../src/calls/scope.ts";
import { customerScope } from "../../src/calls/scope.ts";
import {
  getIncident,
  listIncidents,
  listIncidentWebhooks,
  openIncidentsOf,
} from "../../src/incidents/incidents.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { aWebhook } from "../support/builders.ts";
import { judgedWebhooks } from "./failing.ts";

const db = await openQueueDatabase();
const PAGE = { after: null, limit: 10 };
const ofCustomer = (customer: string) =>
  aWebhook().at(`https://shared.example/${crypto.randomUUID()}`).with({ customer }).in(db);
const list = (scope: Scope) => listIncidents(db, scope, {}, PAGE);
const fail = (...webhooks: bigint[]) => judgedWebhooks(db, webhooks);
const recover = (...webhooks: bigint[]) => judgedWebhooks(db, webhooks, null);
const letPass = (minutes: number) =>
  db.raw(`update incidents set opened = opened - interval '${minutes} minutes', closed = closed - interval '${minutes} minutes';
    update incident_webhooks set since = since - interval '${minutes} minutes', ended = ended - interval '${minutes} minutes'`);

/** What a customer sees of a webhook that fails, recovers and fails again ten minutes later. */
async function seenOf(customer: string) {
  const own = await ofCustomer(customer);
  const scope = customerScope(customer);
  await fail(own);
  await letPass(3);
  await recover(own);
  await letPass(10);
  await fail(own);
  const found = await list(scope);
  const webhooks = await Promise.all(found.map(({ id }) => listIncidentWebhooks(db, scope, id, PAGE)));
  const open = await openIncidentsOf(db, scope, [own]);
  expect(open.get(own)?.id).toBe(found[0]?.id);
  return found.map(({ ended, webhooks: n, failingWebhooks, measuredWebhooks }, i) => ({
    isOpen: ended === null,
    counts: [n, failingWebhooks, measuredWebhooks, webhooks[i]?.length],
    isOwnTime: webhooks[i]?.[0]?.since.getTime() === found[i]?.since.getTime(),
  }));
}

test("what a customer sees of incidents does not depend on webhooks of others that fail at the same host all the time", async () => {
  const alone = await seenOf("alone");
  await db.raw("delete from incidents; delete from incident_webhooks");
  const others = [await ofCustomer("globex"), await aWebhook().at("https://shared.example/own").in(db)];
  await fail(...others);
  const amongOthers = await seenOf("acme");
  expect(amongOthers).toEqual(alone);
  expect(alone.map(({ isOpen, counts }) => [isOpen, counts])).toEqual([
    [true, [1n, 1n, 1n, 1]],
    [false, [1n, 0n, 1n, 1]],
  ]);
  // For the operator, all of this is one incident, in which each webhook counts once.
  const [incident, ...more] = await list("everything");
  expect(more).toEqual([]);
  expect(incident).toMatchObject({
    webhooks: 3n,
    failingWebhooks: 3n,
    measuredWebhooks: 3n,
    customers: 2n,
    ended: null,
  });
  const id = incident?.id as string;
  expect(await listIncidentWebhooks(db, "everything", id, PAGE)).toHaveLength(3);
  // A customer's ids tell nothing of when others began to fail; the operator finds the incident by them.
  const ids = (await list(customerScope("acme"))).map((each) => each.id);
  expect(new Set([id, ...ids]).size).toBe(3);
  for (const own of ids) expect((await getIncident(db, "everything", own))?.id).toBe(id);
  for (const other of [customerScope("globex"), customerScope("nobody")])
    for (const own of [id, ...ids]) expect(await getIncident(db, other, own)).toBeUndefined();
});

test("an incident of a customer goes on under the same id while one of its webhooks fails, and within five minutes", async () => {
  const [first, second] = [await ofCustomer("acme"), await ofCustomer("acme")];
  const scope = customerScope("acme");
  await fail(first);
  const [incident] = await list(scope);
  await fail(second);
  await recover(first);
  await letPass(10);
  await fail(first);
  await recover(first, second);
  await letPass(2);
  await fail(second);
  expect(await list(scope)).toMatchObject([
    { id: incident?.id, webhooks: 2n, failingWebhooks: 1n, ended: null },
  ]);
});
