import { randomBytes, randomUUID } from "node:crypto";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { audited } from "../../../src/audit/audit-log.ts";
import { scopeOf } from "../../../src/calls/scope.ts";
import { present } from "../../../src/contract/present.ts";
import { termOf } from "../../../src/events/search.ts";
import { ALL_PERMISSIONS } from "../../../src/keys/api-keys.ts";
import { startSession } from "../../../src/keys/sessions.ts";
import { insertReplay } from "../../../src/replays/replays.ts";
import { judgedWebhooks } from "../../incidents/failing.ts";
import { aWebhook } from "../../support/builders.ts";
import { changeDelivery } from "../../support/stored-deliveries.ts";
import type { TestApi } from "../../support/test-api.ts";

/** Deliveries are made in each of these states. */
export const STATES = ["pending", "delivering", "retrying", "delivered", "failed", "cancelled"] as const;
/** Event types that webhooks are registered for. */
const PROCESSES: WebhookProcess[] = [1, 2];

/** An API key, and everything of it that must not become known to others. */
export interface WorldKey {
  id: string;
  name: string;
  secret: string;
  customer: string | null;
  appId: string | null;
  permissions: readonly number[];
  processes: readonly number[];
  markers: string[];
}

/** A webhook with a delivery in each state. */
export interface WorldWebhook {
  id: bigint;
  process: number;
  url: string;
  customer: string | null;
  appId: string | null;
  deliveryIds: string[];
  eventIds: string[];
  /** Of replays of this webhook. */
  replayIds: string[];
  /** URL, users, idempotency keys and searchable values. */
  searched: string[];
  /** Runs and idempotency keys, which no key of an app or a customer is told. */
  ofOperator: string[];
  /** Signing secrets, and everything else beyond the contract's six fields that must not become known to others. */
  markers: string[];
  /** Null for none. */
  endpointId: string | null;
  /** URL and settings, which each webhook of an endpoint shows. */
  settings: string[];
}

/** Two installed apps, two customers, an app of a customer, and the rest, with keys, webhooks and deliveries of each. */
export interface World {
  appA: { id: string; name: string };
  appB: { id: string; name: string };
  customers: string[];
  keys: WorldKey[];
  webhooks: WorldWebhook[];
  /** Keys of app A, of customer A, and of both. */
  callers: WorldKey[];
  /** Those of no webhook: of publishers. */
  events: WorldEvent[];
  /** All webhooks fail at one host: an incident of the operator, and one of each customer. */
  incidents: { id: string; customer: string | null; subject: string }[];
}

/** An event without deliveries, which the operator has published. */
export interface WorldEvent {
  id: string;
  userId: string;
  markers: string[];
}

/** Whom keys and webhooks of the world belong to. */
interface Owner {
  customer: string | null;
  appId: string | null;
}

const marker = (what: string) => `${what}-${randomBytes(9).toString("hex")}`;

/** Fills the database. Ids of webhooks are large, so that no count is taken for one. */
export async function buildWorld(api: TestApi): Promise<World> {
  const { db } = api.context;
  await db.raw("alter table webhooks alter column id restart with 4611686018427000000");
  const makeApp = async (name: string) => ({ id: await api.app(name), name });
  const [appA, appB] = [await makeApp(marker("app-a")), await makeApp(marker("app-b"))];
  const [a, b] = [marker("customer"), marker("customer")];
  const [ofAppA, ofAppB] = [appA, appB].map(({ id }) => ({ customer: null, appId: id })) as [Owner, Owner];
  const ofCustomerA = { customer: a, appId: null };
  const ofBoth = { customer: a, appId: appA.id };
  const ofOperator = { customer: null, appId: null };
  const callers = [
    await worldKey(api, ofAppA, []),
    await worldKey(api, ofAppA, [1]),
    await worldKey(api, ofAppA, [1, 2], [1, 2, 4]),
    await worldKey(api, ofCustomerA, []),
    await worldKey(api, ofCustomerA, [1]),
    await worldKey(api, ofCustomerA, [1, 2], [1, 2, 4]),
    await worldKey(api, ofBoth, []),
    await worldKey(api, ofBoth, [2]),
  ];
  const others = [
    await worldKey(api, ofAppA, [2], [1]),
    await worldKey(api, ofAppB, []),
    await worldKey(api, ofAppB, [1]),
    await worldKey(api, ofOperator, []),
    await worldKey(api, ofOperator, [2]),
    await worldKey(api, { customer: b, appId: null }, []),
    await worldKey(api, { customer: b, appId: appA.id }, []),
    await worldKey(api, { customer: a, appId: appB.id }, []),
  ];
  const revoked = [
    await worldKey(api, ofAppA, [1]),
    await worldKey(api, ofAppB, []),
    await worldKey(api, ofCustomerA, [1]),
    await worldKey(api, { customer: b, appId: null }, []),
  ];
  for (const { id } of revoked) await api.revoke(id);
  const webhooks: WorldWebhook[] = [];
  for (const key of [...callers, ...others]) {
    for (const process of PROCESSES) {
      const url = `https://receiver.example/${marker("url")}`;
      const owned = aWebhook().at(url).for(process).ownedBy(key.id);
      const id = await owned.with({ installed_app_id: key.appId, customer: key.customer }).in(db);
      const secrets = await settingsOf(api, id);
      webhooks.push(await filled(api, key, { id, process, url, endpointId: null }, secrets));
    }
    if (key.processes.length > 0) continue;
    const url = `https://receiver.example/${marker("url")}`;
    const { endpoint } = await api.as(key.secret).endpoints.createEndpoint({ processes: PROCESSES, url });
    const made = endpoint?.webhooks ?? [];
    const secrets = await settingsOf(api, made[0]?.id as bigint);
    for (const { id, webhookProcess: process } of made)
      webhooks.push(
        await filled(api, key, { id, process, url, endpointId: endpoint?.id as string }, secrets),
      );
  }
  const keys = [...callers, ...others, ...revoked];
  await writeAuditLog(api, keys, webhooks);
  await db.raw(
    `insert into webhook_health (webhook_id, health, first_failure, last_failure)
      select id, (array['degraded', 'failing'])[1 + id % 2], now(), now() from webhooks where id % 3 > 0;
    insert into rollup_minutes select id, date_trunc('minute', now()) - interval '1 minute', 1, 1, 0, 0, 5, 5, '{1}' from webhooks;
    insert into rollup_hours select id, date_trunc('hour', now()) - interval '1 hour', 1, 1, 0, 0, 5, 5, '{1}' from webhooks;
    insert into rollup_minutes select 0, date_trunc('minute', now()) - interval '1 minute', 9, 9, 0, 0, 9, 5, '{9}';
    insert into rollup_hours select 0, date_trunc('hour', now()) - interval '1 hour', 9, 9, 0, 0, 9, 5, '{9}'`,
  );
  await judgedWebhooks(
    db,
    webhooks.map(({ id }) => id),
  );
  const incidents = await db("incident_webhooks as m")
    .join("incidents as i", "i.id", "m.incident_id")
    .distinct("m.customer", "m.shown_id as id", "i.subject");
  const events = [await published(api, a), await published(api, b), await published(api, marker("user"))];
  return { appA, appB, customers: [a, b], keys, webhooks, callers, events, incidents };
}

/** Entries about each key and webhook, made with each key: apps see entries about what is theirs, and no author of others. */
async function writeAuditLog(
  { context: { db } }: TestApi,
  keys: readonly WorldKey[],
  webhooks: readonly WorldWebhook[],
) {
  for (const { id: apiKeyId, name: apiKeyName, customer, appId: installedAppId } of keys) {
    const actor = { apiKeyId, apiKeyName, customer, installedAppId, sessionId: null, address: null };
    await audited(db, actor, (_trx, record) =>
      record(
        ...keys.map(({ id, name, customer, appId }) => ({
          ...{ action: "api_key_rotated" as const, target: { id, name, customer, appId, process: null } },
        })),
        ...webhooks.map(({ id, url, customer, appId, process }) => ({
          action: "webhook_paused" as const,
          target: { id: String(id), name: url, customer, appId, process },
        })),
      ),
    );
  }
}

/** An event that is no test, without a delivery. */
async function published({ context: { db } }: TestApi, userId: string): Promise<WorldEvent> {
  const [order, key] = [marker("order"), marker("idempotency")];
  const row = { api_key_id: randomUUID(), idempotency_key: key, process: 1, user_id: userId };
  const payload = JSON.stringify({ OrderNumber: order });
  const [{ id }] = await db("events")
    .insert({ id: db.raw("new_event_id()"), ...row, occurred: new Date(), recipients: 0, payload })
    .returning("id");
  await db("search_terms").insert({ term: String(termOf(order)), event_id: id });
  return { id, userId, markers: [id, order, key] };
}

async function worldKey(
  api: TestApi,
  { customer, appId }: Owner,
  allowedProcesses: WebhookProcess[],
  permissions: readonly Permission[] = ALL_PERMISSIONS as Permission[],
): Promise<WorldKey> {
  const name = marker("key");
  const owner = present({ installedApplicationId: appId, customer });
  // No key of an app or a customer has the permissions of the operator.
  const ofOperator: Permission[] = [Permission.MANAGE_EVENT_TYPES, Permission.MANAGE_CUSTOMERS];
  const isAllowed = (each: Permission) => (appId === null && customer === null) || !ofOperator.includes(each);
  const rights = { permissions: permissions.filter(isAllowed), allowedProcesses };
  const { apiKey, secret } = await api.keys.createApiKey({ name, ...rights, ...owner });
  const id = apiKey?.id as string;
  await startSession(api.context.db, id, secret);
  const markers = [id, name, secret.slice(0, 12), secret];
  return {
    id,
    name,
    secret,
    customer,
    appId,
    permissions: rights.permissions,
    processes: allowedProcesses,
    markers,
  };
}

/** Gives a webhook secrets and settings, which the others of its endpoint share. */
async function settingsOf({ webhooks }: TestApi, webhookId: bigint) {
  await webhooks.rotateWebhookSecret({ webhookId, revokeOldSecrets: true });
  const { secrets } = await webhooks.rotateWebhookSecret({ webhookId });
  const { keyPairs } = await webhooks.rotateWebhookKeyPair({ webhookId });
  const header = { name: marker("x-header"), value: marker("value") };
  const user = { username: marker("user"), password: marker("p") };
  const settings = { headers: [header], authentication: { case: "basic" as const, value: user } };
  await webhooks.setWebhookRequestSettings({ webhookId, settings });
  return {
    secrets: [...secrets.map(({ secret }) => secret.slice("whsec_".length)), header.value, user.password],
    settings: [...keyPairs.map(({ publicKey }) => publicKey), header.name, user.username],
  };
}

/** Gives a webhook an event with a delivery in each state, and a replay. The audit log has entries about all of them. */
async function filled(
  api: TestApi,
  key: WorldKey,
  webhook: Pick<WorldWebhook, "id" | "process" | "url" | "endpointId">,
  { secrets, settings }: { secrets: string[]; settings: string[] },
): Promise<WorldWebhook> {
  const { db } = api.context;
  const { id: webhookId, process, url, endpointId } = webhook;
  const made: WorldWebhook = {
    ...webhook,
    customer: key.customer,
    appId: key.appId,
    deliveryIds: [],
    eventIds: [],
    replayIds: [],
    searched: [url],
    ofOperator: [],
    markers: [...secrets],
    settings: [url, ...settings, ...(endpointId === null ? [] : [endpointId])],
  };
  const run = { workflow_id: marker("workflow"), first_run_id: randomUUID(), lease_until: new Date() };
  const [{ id: runId }] = await db("runs").insert(run).returning("id");
  made.ofOperator.push(run.workflow_id, run.first_run_id);
  for (const state of STATES) {
    const [idempotency, order] = [marker("idempotency"), marker("order")];
    // A customer's webhooks get its own events only.
    const user = key.customer ?? marker("user");
    const [error, responseStart, reason] = [marker("error"), marker("response"), marker("reason")];
    const payload = JSON.stringify({ OrderNumber: order });
    const { eventId, deliveryId } = await api.webhooks.sendTestEvent({ webhookId, payload });
    const published = { api_key_id: key.id, user_id: user, idempotency_key: idempotency };
    await db("events").where({ id: eventId }).update(published);
    await db("search_terms").insert({ term: String(termOf(order)), event_id: eventId });
    const tried = [{ status: 500, error, responseStart }];
    // Overdue from the start, so that time changes no answer.
    const retryAt = new Date(Date.now() - 3_600_000);
    await changeDelivery(db, deliveryId, { state, tried, attempts: 1, reason, runId, retryAt });
    made.deliveryIds.push(deliveryId);
    made.eventIds.push(eventId);
    made.searched.push(user, idempotency, order);
    made.ofOperator.push(idempotency);
    made.markers.push(eventId, deliveryId, order, error, responseStart, reason);
    if (key.customer === null) made.markers.push(user);
  }
  if (key.processes.length === 0 || key.processes.includes(process)) {
    const text = marker("replayed");
    const filter = { webhookId, states: ["failed" as const], search: { text } };
    const scope = scopeOf({
      customer: key.customer,
      installedAppId: key.appId,
      allowedProcesses: key.processes,
      permissions: [],
    });
    const request = { apiKeyId: key.id, idempotencyKey: null, kind: "resend" as const, filter };
    const { id } = await insertReplay(db, scope, request, 30);
    made.replayIds.push(id);
    made.markers.push(id, text);
  }
  return made;
}

/** Whether what belongs to an owner is hidden from a key, worked out apart from the service's own code. */
function isHidden(caller: Owner, owner: Owner): boolean {
  if (caller.customer !== owner.customer) return true;
  return caller.appId !== null && caller.appId !== owner.appId;
}

/** The parts of the world that a key of an app or a customer may not reach. */
export function hiddenFrom(
  world: World,
  caller: WorldKey,
): { webhooks: WorldWebhook[]; keys: WorldKey[]; texts: string[] } {
  const isHiddenWebhook = (webhook: WorldWebhook) =>
    isHidden(caller, webhook) || (caller.processes.length > 0 && !caller.processes.includes(webhook.process));
  const shown = new Set(
    world.webhooks.filter((each) => !isHiddenWebhook(each)).map((each) => each.endpointId),
  );
  // Another webhook of the endpoint shows the settings.
  const webhooks = world.webhooks
    .filter(isHiddenWebhook)
    .map((each) =>
      each.endpointId !== null && shown.has(each.endpointId) ? { ...each, settings: [] } : each,
    );
  const keys = world.keys.filter((key) => isHidden(caller, key));
  const isOwnEvent = ({ userId }: WorldEvent) => isInstance(caller, userId);
  return {
    webhooks,
    keys,
    texts: [
      ...webhooks.flatMap(({ id, settings, markers, ofOperator }) => [
        ...[String(id), ...settings, ...markers, ...ofOperator],
      ]),
      ...keys.flatMap(({ markers }) => markers),
      ...world.events.filter((event) => !isOwnEvent(event)).flatMap(({ markers }) => markers),
      ...world.incidents.filter(({ customer }) => customer !== caller.customer).map(({ id }) => id),
      ...world.customers.filter((customer) => customer !== caller.customer),
      // A key of a customer without an app sees the apps of its customer's keys.
      ...(caller.customer !== null && caller.appId === null ? [] : [world.appB.id, world.appB.name]),
    ],
  };
}

/** Whether the key can access everything of the customer, for OrderDispatched. */
function isInstance({ customer, appId, processes }: WorldKey, userId: string): boolean {
  return customer === userId && appId === null && (processes.length === 0 || processes.includes(1));
}

/** Whether a webhook is in the key's instance: the contract shows six fields of it. */
export const isInInstance = (caller: WorldKey, { customer }: WorldWebhook): boolean =>
  caller.customer === customer;
