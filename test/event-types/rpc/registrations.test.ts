import { Code } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { BadRequestSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { AuditAction } from "../../../gen/webhook/v1/audit_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { EventTypeChangeKind } from "../../../gen/webhook/v1/event_type_pb.ts";
import { eventType, eventTypes, isRegistered } from "../../../src/contract/catalogue.ts";
import { watchEventTypes } from "../../../src/event-types/watch.ts";
import { buildFileSet, eventTypeProto } from "../../support/registered-types.ts";
import { freshUrl, ONLY, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const watch = watchEventTypes(db, pino({ level: "silent" }));
beforeEach(async () => {
  await api.empty();
  await watch.refresh();
});
afterAll(async () => {
  await api.empty();
  await watch.refresh();
  watch.close();
});

const { ADDED, CHANGED, UNCHANGED, DEPRECATED, OFFERED_AGAIN } = EventTypeChangeKind;
const PAID = eventTypeProto("InvoicePaid", 'process: 1004 alias: "invoice.paid"');
const INVOICE_PAID = 1004 as WebhookProcess;
const SENT = eventTypeProto("InvoiceSent");
const setOf = (...texts: string[]) =>
  buildFileSet(
    Object.fromEntries(texts.map((text) => [`${/package ([\w.]+)/.exec(text)?.[1]}.proto`, text])),
  );
const BOTH = setOf(PAID, SENT);
const register = (fileDescriptorSet: Uint8Array, dryRun = false) =>
  api.eventTypes.registerEventTypes({ fileDescriptorSet, dryRun });
const numbers = () =>
  eventTypes()
    .map(({ number }) => number)
    .filter(isRegistered);

test("a registration answers what is added, and again what is unchanged; the service that answers knows the event types", async () => {
  const { changes, revision } = await register(BOTH);
  expect(changes).toMatchObject([
    { process: 1000, name: "InvoiceSent", alias: "", message: "test.invoicesent.InvoiceSent", kind: ADDED },
    { process: 1004, name: "InvoicePaid", alias: "invoice.paid", kind: ADDED },
  ]);
  expect(revision).toBe(1n);
  expect(eventType(1004)).toMatchObject({ name: "InvoicePaid", alias: "invoice.paid" });
  const again = await register(BOTH);
  expect(again).toMatchObject({ revision: 1n, changes: [{ kind: UNCHANGED }, { kind: UNCHANGED }] });
});

test("event types without a number get the smallest that is free, once; files that are left out stay", async () => {
  await register(setOf(eventTypeProto("First", "process: 1001")));
  const { changes } = await register(setOf(eventTypeProto("Second"), eventTypeProto("Third")));
  expect(changes.map(({ process }) => process)).toEqual([1000, 1002]);
  const { changes: later } = await register(setOf(eventTypeProto("Third"), eventTypeProto("Fourth")));
  expect(later).toMatchObject([
    { process: 1002, kind: UNCHANGED },
    { process: 1003, kind: ADDED },
  ]);
  expect(numbers()).toEqual([1000, 1001, 1002, 1003]);
});

test("a dry run answers what the registration would, and changes nothing", async () => {
  const tried = await register(BOTH, true);
  expect(numbers()).toEqual([]);
  expect(await db("required_features")).toEqual([]);
  expect((await api.audit.listAuditEntries({})).entries).toEqual([]);
  expect(tried.revision).toBe(0n);
  expect((await register(BOTH)).changes).toEqual(tried.changes);
});

test("what is refused is named with file, line and remedy, and nothing is registered", async () => {
  await register(setOf(PAID));
  const set = setOf(PAID.replace("1004", "1005"), SENT);
  for (const dryRun of [false, true]) {
    const refused = await register(set, dryRun).catch((error) => error);
    expect(refused).toMatchObject({
      code: Code.InvalidArgument,
      rawMessage: expect.stringMatching(
        /^file_descriptor_set is refused.*\ntest\.invoicepaid\.proto:\d+: .*1004.*; /s,
      ),
    });
    const [details] = refused.findDetails(BadRequestSchema);
    expect(details?.fieldViolations).toMatchObject([{ field: "file_descriptor_set" }]);
  }
  expect(numbers()).toEqual([1004]);
});

test("concurrent registrations are made one after the other, each with numbers of its own", async () => {
  const names = ["Aa", "Bb", "Cc", "Dd"];
  const sets = names.map((name) => setOf(eventTypeProto(name)));
  const answers = await Promise.all([...sets, ...sets].map((set) => register(set)));
  expect(new Set(answers.map(({ revision }) => revision)).size).toBe(4);
  expect(numbers()).toEqual([1000, 1001, 1002, 1003]);
  const byName = answers.map(({ changes }) => `${changes[0]?.name} ${changes[0]?.process}`);
  expect(new Set(byName).size).toBe(4);
});

test("the audit log tells who has registered and deprecated what", async () => {
  const { id, secret } = await api.key({ name: "ci", permissions: ONLY.register });
  const ci = api.as(secret).eventTypes;
  await ci.registerEventTypes({ fileDescriptorSet: BOTH });
  await ci.registerEventTypes({
    fileDescriptorSet: setOf(eventTypeProto("InvoiceSent", 'alias: "invoice.sent"')),
  });
  await ci.deprecateEventType({ eventType: { case: "name", value: "InvoiceSent" } });
  const { entries } = await api.audit.listAuditEntries({ apiKeyId: id });
  expect(entries).toMatchObject([
    {
      action: AuditAction.EVENT_TYPE_DEPRECATED,
      targetId: "1000",
      targetName: "InvoiceSent",
      webhookProcess: 1000,
      changes: [{ field: "deprecated", before: "false", after: "true" }],
    },
    {
      action: AuditAction.EVENT_TYPES_REGISTERED,
      targetId: "2",
      changes: [
        { field: "added", after: "" },
        { field: "changed", after: "InvoiceSent" },
      ],
    },
    {
      action: AuditAction.EVENT_TYPES_REGISTERED,
      targetId: "1",
      changes: [
        { field: "added", after: "InvoiceSent, InvoicePaid" },
        { field: "changed", after: "" },
      ],
      actor: { apiKeyName: "ci" },
    },
  ]);
});

test("the list has all event types by number, with description, sample, schema and history, by pages", async () => {
  await register(BOTH);
  await api.eventTypes.deprecateEventType({ eventType: { case: "process", value: 1004 } });
  const { eventTypes: all } = await api.eventTypes.listEventTypes({});
  expect(all.map(({ process }) => process)).toEqual(eventTypes().map(({ number }) => number));
  expect(all.find(({ process }) => process === 1)).toMatchObject({
    name: "OrderDispatched",
    builtIn: true,
    notice: false,
    registrations: [],
  });
  const paid = all.find(({ process }) => process === 1004);
  expect(paid).toMatchObject({
    name: "InvoicePaid",
    alias: "invoice.paid",
    message: "test.invoicepaid.InvoicePaid",
    description: "The event InvoicePaid.",
    builtIn: false,
    registrations: [
      { revision: 2n, kind: DEPRECATED },
      { revision: 1n, kind: ADDED },
    ],
  });
  expect(paid?.deprecated).toBeDefined();
  expect(JSON.parse(paid?.sample ?? "")).toMatchObject({ Label: "A-7" });
  expect(JSON.parse(paid?.schema ?? "")).toMatchObject({ required: expect.arrayContaining(["Id"]) });
  const found: number[] = [];
  for (let pageToken = ""; ; ) {
    const page = await api.eventTypes.listEventTypes({ pageSize: 4, pageToken });
    found.push(...page.eventTypes.map(({ process }) => process));
    pageToken = page.nextPageToken;
    if (pageToken === "") break;
  }
  expect(found).toEqual(all.map(({ process }) => process));
});

test("a deprecated event type gets no new webhooks, and its webhooks stay; undone, it gets some again", async () => {
  await register(setOf(PAID));
  const url = freshUrl();
  const existing = await api.register({ process: INVOICE_PAID, url });
  const { change } = await api.eventTypes.deprecateEventType({
    eventType: { case: "name", value: "invoice.paid" },
  });
  expect(change).toMatchObject({ process: 1004, kind: DEPRECATED });
  const refused = {
    code: Code.FailedPrecondition,
    rawMessage: expect.stringContaining("InvoicePaid is deprecated"),
  };
  await expect(api.register({ process: INVOICE_PAID })).rejects.toMatchObject(refused);
  await expect(
    api.endpoints.createEndpoint({ processes: [1, INVOICE_PAID], url: freshUrl() }),
  ).rejects.toMatchObject(refused);
  const other = { case: "webhookId", value: await api.register() } as const;
  await expect(
    api.endpoints.updateEndpoint({ target: other, addProcesses: [INVOICE_PAID] }),
  ).rejects.toMatchObject(refused);
  // Callers register their webhooks at each start.
  expect(await api.register({ process: INVOICE_PAID, url })).toBe(existing);
  expect((await api.webhooks.getWebhook({ webhookId: existing })).webhook?.webhookProcess).toBe(1004);

  const undone = await api.eventTypes.deprecateEventType({
    eventType: { case: "process", value: 1004 },
    undo: true,
  });
  expect(undone.change?.kind).toBe(OFFERED_AGAIN);
  await api.register({ process: INVOICE_PAID });
});

test.each([
  { case: "process", value: 4711 } as const,
  { case: "process", value: 1 } as const,
  { case: "name", value: "OrderDispatched" } as const,
  { case: "name", value: "Unknown" } as const,
])("no registered event type: $value", async (wanted) => {
  await expect(api.eventTypes.deprecateEventType({ eventType: wanted })).rejects.toMatchObject({
    code: Code.NotFound,
    rawMessage: expect.stringContaining(`there is no registered event type ${JSON.stringify(wanted.value)}`),
  });
});

test("an alias can be changed", async () => {
  await register(setOf(PAID.replace('alias: "invoice.paid"', "")));
  expect((await register(setOf(PAID))).changes).toMatchObject([{ alias: "invoice.paid", kind: CHANGED }]);
  expect(eventType(1004)?.alias).toBe("invoice.paid");
});

test("keys of installed apps neither get the permission, nor may they register or deprecate with it", async () => {
  const installedApplicationId = await api.app();
  await expect(
    api.keys.createApiKey({ name: "app", permissions: ONLY.register, installedApplicationId }),
  ).rejects.toMatchObject({
    code: Code.InvalidArgument,
    rawMessage: expect.stringContaining("permissions names Manage_Event_Types"),
  });
  // As an older release may have stored it.
  const { secret } = await api.key({ permissions: ONLY.register, installedAppId: installedApplicationId });
  const app = api.as(secret).eventTypes;
  const refused = { code: Code.PermissionDenied, rawMessage: expect.stringContaining("installed app") };
  await expect(app.registerEventTypes({ fileDescriptorSet: BOTH })).rejects.toMatchObject(refused);
  await expect(app.deprecateEventType({ eventType: { case: "process", value: 1004 } })).rejects.toMatchObject(
    refused,
  );
});

test("a key may be allowed registered event types; an unknown one is refused with the first of those that exist", async () => {
  await register(setOf(...Array.from({ length: 20 }, (_, n) => eventTypeProto(`Type${n}`))));
  const processes = [1, 1000, 1019] as WebhookProcess[];
  const made = await api.keys.createApiKey({
    name: "key",
    permissions: ONLY.write,
    allowedProcesses: processes,
  });
  expect(made.apiKey?.allowedProcesses).toEqual(processes);
  expect(await api.register({ process: 1019 as WebhookProcess, key: made.secret })).toBeGreaterThan(0n);
  await expect(api.register({ process: 1001 as WebhookProcess, key: made.secret })).rejects.toMatchObject({
    code: Code.PermissionDenied,
  });
  await expect(
    api.keys.createApiKey({
      name: "key",
      permissions: ONLY.write,
      allowedProcesses: [1020 as WebhookProcess],
    }),
  ).rejects.toMatchObject({
    code: Code.InvalidArgument,
    rawMessage: expect.stringMatching(/1020 is not an event type; allowed: 1 \(.*1019 \(Type9\)/),
  });
  const { entries } = await api.audit.listAuditEntries({ targetId: made.apiKey?.id ?? "" });
  expect(entries).toHaveLength(1);
});

test("while a process that does not know registered event types runs, none is registered, and the error names it", async () => {
  const leaseUntil = new Date(Date.now() + 60_000);
  const older = { name: "old-1", release: "0.4.0", role: "api", features: [], lease_until: leaseUntil };
  await db("instances").insert(older);
  onTestFinished(() => db("instances").delete());
  for (const dryRun of [false, true])
    await expect(register(BOTH, dryRun)).rejects.toMatchObject({
      code: Code.FailedPrecondition,
      rawMessage: expect.stringMatching(
        /event-types, which these processes do not know: old-1 \(release 0\.4\.0, api\)/,
      ),
    });
  expect(numbers()).toEqual([]);
  await db("instances").delete();
  await register(BOTH);
  expect(await db("required_features").pluck("name")).toEqual(["event-types"]);
});

test("a set of 16 MiB is taken, also compressed and as JSON", async () => {
  // A comment makes it large: one field, of one message.
  const set = setOf(SENT.replace("// The event", `// ${"x".repeat(12 * 2 ** 20)}\n// The event`));
  expect(set.length).toBeGreaterThan(12 * 2 ** 20);
  const body = JSON.stringify({ fileDescriptorSet: Buffer.from(set).toString("base64"), dryRun: true });
  const response = await fetch(`${api.url}/webhook.v1.EventTypeService/RegisterEventTypes`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Service-Key": api.adminKey },
    body,
  });
  expect([response.status, await response.text()]).toEqual([200, expect.stringContaining("InvoiceSent")]);
  expect((await register(set)).changes).toMatchObject([{ name: "InvoiceSent" }]);
});
