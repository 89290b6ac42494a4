import { randomBytes, randomUUID } from "node:crypto";
import { type AuditRecord, audited } from "../../../src/db/audit/audit-log.ts";
import { createEndpoint } from "../../../src/db/endpoints/endpoints.ts";
import { termOf } from "../../../src/db/events/search.ts";
import { ALL_PERMISSIONS } from "../../../src/db/keys/api-keys.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import { startSession } from "../../../src/db/keys/sessions.ts";
import { insertReplay } from "../../../src/db/replays/replays.ts";
import { scopeOf } from "../../../src/db/scope.ts";
import { readKeyPairs, rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { readWebhookSecrets, rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { createWebhook, idsOf } from "../../../src/db/webhooks/webhooks.ts";
import { idBeside, storeDeliveries } from "../../support/stored-deliveries.ts";
import type { TestApi } from "../../support/test-api.ts";

/** Deliveries are made in each of these states. */
export const STATES = ["pending", "delivering", "retrying", "delivered", "failed", "cancelled"] as const;
/** Event types that webhooks are registered for. */
const PROCESSES = [1, 2];

/** An API key, and everything of it that must not become known to others. */
export interface WorldKey {
  id: string;
  secret: string;
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
  appId: string | null;
  keyId: string;
  deliveryIds: string[];
  eventIds: string[];
  /** Of replays of this webhook. */
  replayIds: string[];
  /** URL, users, idempotency keys and searchable values. */
  searched: string[];
  /** The signing secrets, and everything else beyond the contract's six fields that must not become known to others. */
  markers: string[];
  /** Null for none. */
  endpointId: string | null;
  /** URL and settings, which each webhook of an endpoint shows. */
  settings: string[];
}

/** Two installed apps and the rest, with keys, webhooks and deliveries of each. */
export interface World {
  appA: { id: string; name: string };
  appB: { id: string; name: string };
  keys: WorldKey[];
  webhooks: WorldWebhook[];
  /** Keys of app A that call. */
  callers: WorldKey[];
}

const marker = (what: string) => `${what}-${randomBytes(9).toString("hex")}`;

/** Fills the database. Ids of webhooks are large, so that no count is taken for one. */
export async function buildWorld(api: TestApi): Promise<World> {
  const { db } = api.context;
  await db.raw("alter table webhooks alter column id restart with 4611686018427000000");
  const [appA, appB] = [
    await createInstalledApp(db, marker("app-a")),
    await createInstalledApp(db, marker("app-b")),
  ];
  const makeKey = (
    appId: string | null,
    processes: number[],
    permissions: readonly number[] = ALL_PERMISSIONS,
  ) => worldKey(api, appId, processes, permissions);
  const callers = [
    await makeKey(appA.id, []),
    await makeKey(appA.id, [1]),
    await makeKey(appA.id, [1, 2], [1, 2, 4]),
  ];
  const others = [
    await makeKey(appA.id, [2], [1]),
    await makeKey(appB.id, []),
    await makeKey(appB.id, [1]),
    await makeKey(null, []),
    await makeKey(null, [2]),
  ];
  const revoked = [await makeKey(appA.id, [1]), await makeKey(appB.id, []), await makeKey(null, [])];
  for (const { id } of revoked) await revokeApiKey(db, "everything", id, "delete");
  const webhooks: WorldWebhook[] = [];
  for (const key of [...callers, ...others]) {
    for (const process of PROCESSES) webhooks.push(await worldWebhook(api, key, process));
  }
  const withEndpoints = [...callers, ...others].filter(({ processes }) => processes.length === 0);
  for (const key of withEndpoints) webhooks.push(...(await worldEndpoint(api, key)));
  const keys = [...callers, ...others, ...revoked];
  await writeAuditLog(api, keys, webhooks);
  return { appA, appB, keys, webhooks, callers };
}

/** Entries about every key, webhook and delivery, made with keys of every app and of none. */
async function writeAuditLog(
  api: TestApi,
  keys: readonly WorldKey[],
  webhooks: readonly WorldWebhook[],
): Promise<void> {
  for (const actor of keys) {
    const [id, apiKeyName] = actor.markers as [string, string];
    const made = { apiKeyId: id, apiKeyName, installedAppId: actor.appId, sessionId: null, address: null };
    await audited(api.context.db, made, (_trx, record) =>
      record(
        ...keys.map((key): AuditRecord => {
          const target = { id: key.id, name: key.markers[1] as string, appId: key.appId, process: null };
          return { action: "api_key_rotated", target, after: { prefix: key.markers[2] as string } };
        }),
        ...webhooks.flatMap(({ id: webhookId, url, appId, process, deliveryIds }): AuditRecord[] => {
          const target = { id: String(webhookId), name: url, appId, process };
          return [
            { action: "webhook_paused", target, after: { url } },
            ...deliveryIds.map(
              (each): AuditRecord => ({ action: "delivery_sent_again", target: { ...target, id: each } }),
            ),
          ];
        }),
      ),
    );
  }
}

async function worldKey(
  api: TestApi,
  appId: string | null,
  processes: number[],
  permissions: readonly number[],
): Promise<WorldKey> {
  const name = marker("key");
  const rights = { permissions, allowedProcesses: processes, installedAppId: appId };
  const { id, secret } = await api.key({ name, ...rights });
  await startSession(api.context.db, id, secret);
  return { id, secret, appId, permissions, processes, markers: [id, name, secret.slice(0, 12), secret] };
}

async function worldWebhook(api: TestApi, key: WorldKey, process: number): Promise<WorldWebhook> {
  const { db, secrets } = api.context;
  const url = `https://receiver.example/${marker("url")}`;
  const registration = { process, url, targetUrl: url, apiKeyId: key.id };
  const { webhook } = await createWebhook(db, secrets, registration, 1_000);
  return filled(
    api,
    key,
    { id: webhook.id, process, url, endpointId: null },
    await settingsOf(api, [webhook.id]),
  );
}

/** An endpoint with a webhook of each type. */
async function worldEndpoint(api: TestApi, key: WorldKey): Promise<WorldWebhook[]> {
  const { db, secrets } = api.context;
  const url = `https://receiver.example/${marker("url")}`;
  const registration = { processes: PROCESSES, url, targetUrl: url, apiKeyId: key.id };
  const { id: endpointId, webhooks } = await createEndpoint(db, secrets, "everything", registration, 1_000);
  const settings = await settingsOf(api, idsOf(webhooks));
  const made: WorldWebhook[] = [];
  for (const { id, process } of webhooks)
    made.push(await filled(api, key, { id, process, url, endpointId }, settings));
  return made;
}

/** Secrets and settings of a webhook, or of the webhooks of an endpoint. */
interface WorldSettings {
  secrets: string[];
  settings: string[];
}

async function settingsOf(api: TestApi, ids: readonly bigint[]): Promise<WorldSettings> {
  const { db, secrets } = api.context;
  const [id] = ids as [bigint];
  await rotateWebhookSecret(db, secrets, ids);
  const signing = (await readWebhookSecrets(db, secrets, "everything", id)) ?? [];
  await rotateKeyPair(db, secrets, ids, false);
  const settings = {
    name: marker("x-header"),
    value: marker("value"),
    username: marker("user"),
    password: marker("p"),
  };
  await writeRequestSettings(db, secrets, ids, {
    headers: [settings],
    authentication: { kind: "basic", ...settings },
    tls: null,
  });
  return {
    secrets: [...signing.map(({ secret }) => secret.toString("base64")), settings.value, settings.password],
    settings: [
      ...(await readKeyPairs(db, secrets, id)).map(({ publicKey }) => publicKey),
      settings.name,
      settings.username,
    ],
  };
}

/** What each delivery has that others must not learn. */
const SECRETS = ["idempotency", "order", "payload", "user", "error", "response", "reason"] as const;

/** Gives a webhook an event with a delivery in each state, and replays. */
async function filled(
  api: TestApi,
  key: WorldKey,
  webhook: Pick<WorldWebhook, "id" | "process" | "url" | "endpointId">,
  { secrets, settings }: WorldSettings,
): Promise<WorldWebhook> {
  const { db } = api.context;
  const { id: webhookId, process, url, endpointId } = webhook;
  const made: WorldWebhook = {
    ...webhook,
    appId: key.appId,
    keyId: key.id,
    deliveryIds: [],
    eventIds: [],
    replayIds: [],
    searched: [url],
    markers: [...secrets],
    settings: [url, ...settings, ...(endpointId === null ? [] : [endpointId])],
  };
  for (const state of STATES) {
    const hidden = Object.fromEntries(SECRETS.map((what) => [what, marker(what)]));
    const { idempotency, order, payload, user, error, response, reason } = hidden as Record<
      (typeof SECRETS)[number],
      string
    >;
    const lease = db.raw("now() + interval '1 day'");
    const run = { workflow_id: marker("workflow"), first_run_id: randomUUID(), lease_until: lease, sent: 1 };
    const [{ id: runId }] = await db("runs").insert(run).returning("id");
    const published = { api_key_id: key.id, idempotency_key: idempotency };
    const [{ id: eventId }] = await db("events")
      .insert({
        id: db.raw("new_event_id()"),
        ...published,
        process,
        user_id: user,
        occurred: db.fn.now(),
        recipients: 1,
        payload: JSON.stringify({ Text: payload }),
      })
      .returning("id");
    await db("idempotency_keys").insert({
      ...published,
      event_id: eventId,
      request_sha256: Buffer.alloc(32),
    });
    await db("search_terms").insert({ term: String(termOf(order)), event_id: eventId });
    const tried = [{ status: 500, error, responseStart: response }];
    const delivery = { id: idBeside(eventId), webhookId, eventId, state, tried, runId, reason };
    const deliveryIds = await storeDeliveries(db, [delivery]);
    made.deliveryIds.push(...deliveryIds);
    made.eventIds.push(eventId);
    made.searched.push(user, idempotency, order);
    made.markers.push(eventId, ...deliveryIds, ...Object.values(hidden));
  }
  if (key.processes.length === 0 || key.processes.includes(process)) {
    const text = marker("replayed");
    const filter = { webhookId, states: ["failed" as const], search: { text } };
    const scope = scopeOf({ installedAppId: key.appId, allowedProcesses: key.processes, permissions: [] });
    const request = { apiKeyId: key.id, idempotencyKey: null, kind: "resend" as const, filter };
    const { id } = await insertReplay(db, scope, request, 30);
    made.replayIds.push(id);
    made.markers.push(id, text);
  }
  return made;
}

/** The parts of the world that a key of an app may not reach, worked out apart from the service's own code. */
export function hiddenFrom(world: World, caller: WorldKey): { webhooks: WorldWebhook[]; keys: WorldKey[] } {
  const isHidden = ({ appId, process }: WorldWebhook) =>
    appId !== caller.appId || (caller.processes.length > 0 && !caller.processes.includes(process));
  const shown = new Set(
    world.webhooks.filter((webhook) => !isHidden(webhook)).map(({ endpointId }) => endpointId),
  );
  return {
    webhooks: world.webhooks
      .filter(isHidden)
      // Another webhook of the endpoint shows the settings.
      .map((webhook) =>
        webhook.endpointId !== null && shown.has(webhook.endpointId) ? { ...webhook, settings: [] } : webhook,
      ),
    keys: world.keys.filter(({ appId }) => appId !== caller.appId),
  };
}
