import { randomBytes, randomUUID } from "node:crypto";
import { beforeEach, expect } from "vitest";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { noteGone } from "../../src/breakers/note-attempts.ts";
import { publishEvents } from "../../src/events/publish.ts";
import { createInstalledApp } from "../../src/keys/installed-apps.ts";
import { adoptRetries, assignGroups } from "../../src/queue/retry-groups.ts";
import { describeEventTypes } from "../../src/webhooks/rpc/event-types.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { createWebhook, getWebhook } from "../../src/webhooks/webhooks.ts";
import { decided, SETTINGS } from "../breakers/breakers.ts";
import { claim, claimRetries, freshClaimant, openQueueDatabase, record } from "../queue/queue.ts";
import { aKey } from "../support/builders.ts";
import { imbalance, readLedger } from "../support/ledger.ts";
import { anEvent } from "../support/new-event.ts";
import { schemaValidator } from "../support/schema-validator.ts";

export const { WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED } = WebhookProcess;
export const EVERY_NOTICE = [WEBHOOK_FAILING, WEBHOOK_RECOVERED, WEBHOOK_DISABLED, DELIVERY_FAILED];

/** What tests of notices share, on the empty database of the worker. */
export async function useNotices() {
  const db = await openQueueDatabase();
  const secrets = createSecretBox(randomBytes(32));

  const BREAKER = { ...SETTINGS, failures: 1_000, disableOnGone: true };

  /** The id of a key that may subscribe to event types, all unless given. */
  async function key(
    installedAppId?: string,
    allowedProcesses: number[] = [],
    customer: string | null = null,
  ): Promise<string> {
    const permissions = [1, 2, 3];
    const ofApp = installedAppId === undefined ? {} : { installedAppId };
    return (await aKey({ permissions, allowedProcesses, customer, ...ofApp }).in(db)).id;
  }

  /** A key without an app. */
  let admin: string;
  beforeEach(async () => {
    admin = await key();
  });

  const app = async () => (await createInstalledApp(db, "App")).id;

  /** Registers a webhook of a key; answers its id. */
  async function register(apiKeyId: string, process = 1): Promise<bigint> {
    const url = `https://shop.example/${randomUUID()}`;
    return (await createWebhook(db, secrets, { process, url, targetUrl: url, apiKeyId }, 1_000)).webhook.id;
  }

  async function answeredGone(webhookId: bigint): Promise<void> {
    await noteGone(db, webhookId, (await getWebhook(db, "everything", webhookId))?.targetUrl ?? "");
  }

  const publish = (apiKeyId: string, events: number, process = 1, userId = "tenant-7") =>
    publishEvents(
      db,
      Array.from({ length: events }, () => anEvent({ apiKeyId, process, userId })),
    );

  /** Makes one attempt of everything that is pending. */
  const attemptAll = async (status: number) => record(db, await claim(db), status);

  /** Makes every retry of what waits, until the round is over. */
  async function failRetries(): Promise<void> {
    for (;;) {
      const claimant = await freshClaimant(db);
      await db("retries").update({ run_id: null });
      if ((await adoptRetries(db, claimant.runId)) === 0) return;
      await assignGroups(db, claimant.runId);
      await db("run_groups").update({ group_number: 1 });
      await record(db, await claimRetries(db, claimant), 503);
    }
  }

  /** By event type, whether a payload is valid by the schema that the service describes, and the order of its sample. */
  const TYPES = new Map(
    describeEventTypes().map(({ number, schema, sample }) => [
      number,
      { isValid: schemaValidator(schema), names: Object.keys(JSON.parse(sample)) },
    ]),
  );

  /** Folds, decides on breakers, and answers the notices so far with their receivers. All are as their types describe. */
  async function notices() {
    await decided(db);
    expect(imbalance(await readLedger(db))).toBe(0n);
    const events = await db("events").where("process", ">", 10_000).where({ test: false }).orderBy("id");
    return Promise.all(
      events.map(async ({ id, process, user_id: userId, payload: json }) => {
        const payload = JSON.parse(json);
        const type = TYPES.get(process);
        expect(type?.isValid(payload), json).toBe(true);
        expect(Object.keys(payload)).toEqual(type?.names);
        const receivers = db("all_deliveries").where({ event_id: id }).orderBy("webhook_id");
        return { process, userId, payload, webhooks: (await receivers.pluck("webhook_id")) as bigint[] };
      }),
    );
  }

  /** Each notice and its receivers. */
  const sent = async () => (await notices()).map(({ process, webhooks }) => [process, webhooks]);

  const stored = { db, BREAKER, key, app, register, answeredGone, publish };
  return { ...stored, attemptAll, failRetries, notices, sent, admin: () => admin };
}
