import { randomBytes, randomUUID } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Code, createClient } from "@connectrpc/connect";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { AuditAction, type AuditEntry, AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { setRegisteredTypes } from "../../src/contract/catalogue.ts";
import { type Db, openDatabase } from "../../src/lib/pg/database.ts";
import { adminKey, startedService } from "../process/started-service.ts";
import { aWebhook } from "../support/builders.ts";
import { createTestDatabase } from "../support/database.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { buildFileSet, eventTypeProto } from "../support/registered-types.ts";
import { freshUrl } from "../support/test-api.ts";
import { keyedTransport } from "../support/test-service.ts";
import { eventually } from "../support/wait.ts";

// The services run in this process.
afterEach(() => setRegisteredTypes([]));

const PAID = eventTypeProto("InvoicePaid", 'process: 1004 alias: "invoice.paid"');

/** A database of the test's own. */
async function aDatabase(): Promise<{ url: string; db: Db }> {
  const database = await createTestDatabase();
  const db = openDatabase(database.url, { max: 2, applicationName: "test" });
  onTestFinished(async () => {
    await db.destroy();
    await database.drop();
  });
  return { url: database.url, db };
}

/** A file as `buf build -o` writes it. */
async function aSet(text: string): Promise<string> {
  const file = path.join(tmpdir(), `${randomUUID()}.binpb`);
  await writeFile(file, buildFileSet({ "events.proto": text }));
  onTestFinished(() => rm(file));
  return file;
}

const SECRET_KEY = randomBytes(32).toString("base64");

async function start(url: string, settings: Record<string, string>) {
  const { starting, grpcPort } = await startedService({
    ...{ ROLE: "api", DATABASE_URL: url, SECRET_KEY },
    ...settings,
  });
  await starting;
  return keyedTransport(grpcPort, adminKey);
}

test("the event types of EVENT_TYPES are registered at start, by one process of all, and unchanged at the next", async () => {
  const { url, db } = await aDatabase();
  const EVENT_TYPES = await aSet(PAID);
  const [transport] = await Promise.all([start(url, { EVENT_TYPES }), start(url, { EVENT_TYPES })]);
  await start(url, { EVENT_TYPES });
  expect(await db("event_type_registrations").pluck("revision")).toEqual([1n]);
  const { eventTypes } = await createClient(EventTypeService, transport).listEventTypes({});
  expect(eventTypes.find(({ process }) => process === 1004)).toMatchObject({ alias: "invoice.paid" });
  const { entries } = await createClient(AuditService, transport).listAuditEntries({
    actions: [AuditAction.EVENT_TYPES_REGISTERED],
  });
  expect(entries).toMatchObject([{ byOperator: true }] satisfies Partial<AuditEntry>[]);
});

test("EVENT_TYPES that were registered before are registered again after others have changed them", async () => {
  const { url, db } = await aDatabase();
  const first = await aSet(PAID);
  const second = await aSet(PAID.replace("The event InvoicePaid", "An invoice is paid"));
  for (const EVENT_TYPES of [first, second, second, first, first]) await start(url, { EVENT_TYPES });
  expect(await db("event_type_registrations").orderBy("revision").pluck("revision")).toEqual([1n, 2n, 3n]);
});

test("event types that are refused stop the start with all reasons", async () => {
  const { url, db } = await aDatabase();
  await start(url, { EVENT_TYPES: await aSet(PAID) });
  const refused = await aSet(PAID.replace("1004", "1005"));
  await expect(start(url, { EVENT_TYPES: refused })).rejects.toThrow(
    /^file_descriptor_set is refused.*\nevents\.proto:\d+: test\.invoicepaid\.InvoicePaid: .*1004/s,
  );
  await expect(start(url, { EVENT_TYPES: "/nowhere" })).rejects.toThrow(/\/nowhere/);
  expect(await db("event_type_registrations").pluck("revision")).toEqual([1n]);
});

test("while a process of an older release runs, a start registers nothing, and registers when it has ended", async () => {
  const { url, db } = await aDatabase();
  const leaseUntil = new Date(Date.now() + 3_600_000);
  const older = { name: "old", release: "0.4.0", role: "api", features: [], lease_until: leaseUntil };
  await db("instances").insert(older);
  await start(url, { EVENT_TYPES: await aSet(PAID) });
  expect(await db("event_types").pluck("process")).toEqual([]);
  await db("instances").where({ name: "old" }).delete();
  await eventually(async () => expect(await db("event_types").pluck("process")).toEqual([1004]));
});

test("BUILT_IN_EVENT_TYPES=false hides the built-in event types without webhooks: they are neither listed nor published", async () => {
  const { url, db } = await aDatabase();
  await aWebhook().for(2).in(db);
  await db("processes").insert({ process: 2, revision: 1n, live: 1 });
  const transport = await start(url, { BUILT_IN_EVENT_TYPES: "false", EVENT_TYPES: await aSet(PAID) });
  const { eventTypes } = await createClient(EventTypeService, transport).listEventTypes({});
  expect(eventTypes.filter(({ notice }) => !notice).map(({ process }) => process)).toEqual([2, 1004]);
  const webhooks = createClient(WebhookService, transport);
  await expect(webhooks.createWebhook({ process: 1, url: freshUrl() })).rejects.toMatchObject({
    code: Code.InvalidArgument,
    rawMessage: expect.stringMatching(
      /1 is not an event type; allowed: 2 \(\w+\), 1004 \(InvoicePaid, invoice\.paid\)/,
    ),
  });
  await webhooks.createWebhook({ process: 2, url: freshUrl() });
  await expect(createClient(EventService, transport).publishEvent(orderEvent())).rejects.toMatchObject({
    code: Code.InvalidArgument,
    rawMessage: expect.stringMatching(
      /^order_dispatched is hidden .*BUILT_IN_EVENT_TYPES=false.*InvoicePaid/,
    ),
  });
});
