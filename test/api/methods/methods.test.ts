import { clone, create, type DescMethod, getOption, toJsonString } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectError } from "@connectrpc/connect";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { AuditActionSchema, AuditEntrySchema } from "../../../gen/webhook/v1/audit_pb.ts";
import type { PublishResult } from "../../../gen/webhook/v1/event_pb.ts";
import { required_permission } from "../../../gen/webhook/v1/options_pb.ts";
import { permissionName } from "../../../src/contract/permissions.ts";
import { ALL_PERMISSIONS } from "../../../src/keys/api-keys.ts";
import { callMethod, METHODS } from "../../support/any-method.ts";
import { watchRows } from "../../support/changed-rows.ts";
import { failure } from "../../support/failure.ts";
import { startTestApi } from "../../support/test-api.ts";
import { fieldsIn, fieldsOf, largestValues, unknownIds, wrongValues } from "./field-values.ts";
import { type MethodCase, methodCases } from "./method-cases.ts";

const api = await startTestApi({
  dispatchNow: async () => {},
  tryRequest: async () => ({
    ...{ accepted: true, status: 200, error: null, responseStart: null, durationMs: 1 },
    ...{ cause: null, timing: [], addresses: [], certificates: [] },
  }),
});
const changedRows = await watchRows(api.context.db);
const cases = await methodCases(api);
const deletedWebhookId = await api.register();
await api.webhooks.deleteWebhook({ webhookId: deletedWebhookId });
afterAll(() => api.stop());
// Of open replays there are few.
afterEach(() => api.context.db("replays").delete());

const caseOf = (name: string) => cases[name] as MethodCase;
/** A right request, and those with other members of its oneofs. */
async function requestsOf(name: string) {
  const { request, others = async () => [] } = caseOf(name);
  return [await request(), ...(await others())];
}

/** A call; its refusal, or that of the only event of several. */
async function refusalOf(
  method: DescMethod,
  secret: string,
  request: object,
): Promise<Pick<ConnectError, "code" | "rawMessage"> | undefined> {
  const call = callMethod(api, method, secret, request);
  const refused = await failure(call);
  if (refused) return refused;
  const [{ result } = { result: undefined }] = ((await call) as { results?: PublishResult[] }).results ?? [];
  return result?.case === "error" ? { code: result.value.code, rawMessage: result.value.message } : undefined;
}

const withoutIds = (refused?: { rawMessage: string }) =>
  refused?.rawMessage.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, "#");

/** What a key has changed, newest first. */
async function entriesOf(apiKeyId: string) {
  return (await api.audit.listAuditEntries({ apiKeyId })).entries;
}

test("every method has a case", () => {
  expect(Object.keys(cases).toSorted()).toEqual(METHODS.map(([name]) => name).toSorted());
});

test.each(METHODS)("%s needs one permission, and is refused without it", async (name, method) => {
  const needed = getOption(method, required_permission);
  const request = await caseOf(name).request();
  const others = await api.key({ permissions: ALL_PERMISSIONS.filter((each) => each !== needed) });
  await changedRows();
  const refused = await refusalOf(method, others.secret, request);
  expect([refused?.code, refused?.rawMessage]).toEqual([
    Code.PermissionDenied,
    `the API key lacks the permission ${permissionName(needed)}, which ${method.name} requires`,
  ]);
  expect(await changedRows()).toEqual([]);
  const { secret } = await api.key({ permissions: [needed] });
  expect(await refusalOf(method, secret, request)).toBeUndefined();
});

test.each(METHODS)(
  "%s leaves its entries in the audit log, and none if it changes nothing",
  async (name, method) => {
    const { request: make, entries = () => ({}), again } = caseOf(name);
    const { id, secret } = await api.key({ name: "caller" });
    const request = await make();
    await changedRows();
    const answer = await callMethod(api, method, secret, request);
    const made =
      typeof entries === "string"
        ? { [entries]: [String(Object.values(request)[0])] }
        : entries(request, answer);
    const expected = Object.entries(made).flatMap(([action, ids]) =>
      (ids as string[]).map((targetId) => `${action} ${targetId}`),
    );
    const found = await entriesOf(id);
    expect(
      found.map(({ action, targetId }) => `${AuditActionSchema.value[action]?.localName} ${targetId}`).sort(),
    ).toEqual(expected.toSorted());
    const by = { byOperator: false, actor: { apiKeyName: "caller", address: "127.0.0.1" } };
    for (const entry of found) {
      expect(entry).toMatchObject(by);
      expect(toJsonString(AuditEntrySchema, entry)).not.toMatch(/whsec_|whk_[\w-]{9}/);
    }
    const { NO_SIDE_EFFECTS, IDEMPOTENT } = MethodOptions_IdempotencyLevel;
    // Watching changes nothing, but cannot be called by GET.
    const isRead = method.idempotency === NO_SIDE_EFFECTS || method.name === "WatchOverview";
    const tables = (await changedRows()).map(({ table }) => table);
    if (isRead) expect(tables).toEqual(expected.map(() => "audit_log"));
    else expect(tables).not.toEqual([]);

    if (method.idempotency === IDEMPOTENT) expect(again).toBeUndefined();
    const refused = await refusalOf(method, secret, request);
    expect(refused?.code ?? again).toBe(again);
    if (again === "another") expect(await entriesOf(id)).toHaveLength(2 * expected.length);
    else expect(await changedRows()).toEqual([]);
  },
);

describe("fields", () => {
  test("every field of every request is in a case", async () => {
    for (const [name, { input }] of METHODS) {
      const found = (await requestsOf(name)).flatMap((each) => fieldsIn(input, create(input, each)));
      expect([name, [...new Set(found)].sort()]).toEqual([name, [...new Set(fieldsOf(input))].sort()]);
      await api.context.db("replays").delete();
    }
  });

  test.each(METHODS)(
    "%s refuses wrong values by the field's name, and changes nothing",
    async (name, method) => {
      const { secret } = await api.key();
      for (const right of await requestsOf(name)) {
        const message = create(method.input, right);
        const wrong = wrongValues(method.input, message);
        await changedRows();
        const answers = await Promise.all(
          wrong.map(async ({ path, what, set }) => {
            const copy = clone(method.input, message);
            set(copy);
            const refused = await refusalOf(method, secret, copy);
            const field = path.split(".").at(-1) as string;
            const isNamed = refused?.code === Code.InvalidArgument && refused.rawMessage.includes(field);
            return isNamed ? [] : [`${path}, ${what}: ${refused?.rawMessage}`];
          }),
        );
        expect(answers.flat().join("\n")).toBe("");
        expect(await changedRows()).toEqual([]);
      }
    },
  );

  test.each(METHODS)("%s refuses ids that nothing has, or finds nothing by them", async (name, method) => {
    const { unknown = {} } = caseOf(name);
    const { secret } = await api.key();
    for (const right of await requestsOf(name)) {
      const message = create(method.input, right);
      await changedRows();
      for (const { path, what, set } of unknownIds(method.input, message, deletedWebhookId)) {
        const copy = clone(method.input, message);
        set(copy);
        const refused = await refusalOf(method, secret, copy);
        const expected = unknown[`${path}, ${what}`] ?? unknown[path] ?? Code.NotFound;
        expect([path, what, refused?.code ?? "accepted"]).toEqual([path, what, expected]);
        if (expected !== "accepted") expect(await changedRows()).toEqual([]);
      }
    }
  });

  test.each(METHODS)("%s answers a key of another app as if nothing had the id", async (name, method) => {
    const { unknown = {}, forApps } = caseOf(name);
    const { secret } = await api.key({ installedAppId: await api.app() });
    for (const right of await requestsOf(name)) {
      const message = create(method.input, right);
      await changedRows();
      const refused = await refusalOf(method, secret, message);
      if (refused) expect(await changedRows()).toEqual([]);
      const [id] = unknownIds(method.input, message, deletedWebhookId).filter(
        ({ path }) => unknown[path] !== "accepted",
      );
      id?.set(message);
      const expected = id && forApps === undefined ? await refusalOf(method, secret, message) : undefined;
      expect([refused?.code, withoutIds(refused)]).toEqual([
        forApps === "accepted" ? undefined : (forApps ?? expected?.code),
        forApps === Code.PermissionDenied ? expect.stringContaining("app") : withoutIds(expected),
      ]);
    }
  });

  test.each(METHODS)("%s accepts the largest values that its comments allow", async (name, method) => {
    const { request } = caseOf(name);
    const { secret } = await api.key();
    for (const { path } of largestValues(method.input, create(method.input, await request()))) {
      const message = create(method.input, await request());
      const value = largestValues(method.input, message).find((each) => each.path === path);
      value?.set(message);
      expect([path, await refusalOf(method, secret, message)]).toEqual([path, undefined]);
    }
  });
});
