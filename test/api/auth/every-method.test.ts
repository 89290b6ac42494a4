import { type DescMethod, type Message, toJson } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { type KeyOwner, reachingMethods, reachOf } from "../../../scripts/security-document.ts";
import { callMethod, METHODS } from "../../support/any-method.ts";
import { type ChangedRow, watchRows } from "../../support/changed-rows.ts";
import { PROTOCOLS } from "../../support/clients.ts";
import { startTestApi } from "../../support/test-api.ts";
import { requestsOf } from "./isolated-requests.ts";
import { buildWorld, hiddenFrom, isInInstance, type WorldKey } from "./isolated-world.ts";
import { keepRows } from "./kept-rows.ts";

/** How many requests are made of each method. */
const RUNS = Number(process.env.ISOLATION_RUNS ?? 8);
const SEED = process.env.FUZZ_SEED;

/** What the contract (2.1) shows of every webhook to every key of its instance. */
const CONTRACT_FIELDS = ["id", "created", "modified", "webhookProcess", "url", "application"];
/** Methods that show every webhook of the instance by these fields: those of the contract. */
const showsAll = ({ parent, name }: DescMethod) =>
  reachOf(`${parent.name}.${name}`).app === "own; all of the instance";

const api = await startTestApi();
afterAll(() => api.stop());
const world = await buildWorld(api);
const { db } = api.context;
const changes = await watchRows(db);
const all = await keepRows(db, "kept");

const PROTOCOL = fc.constantFrom(...PROTOCOLS.map(([name]) => name));
const transports = new Map<string, Transport>();
function transportOf(protocol: string, { secret }: WorldKey): Transport {
  return transports.getOrInsertComputed(`${protocol} ${secret}`, () =>
    (new Map(PROTOCOLS).get(protocol) as (typeof PROTOCOLS)[number][1])(api, secret),
  );
}

const anyOf = (texts: string[]) =>
  new RegExp(texts.map((each) => each.replaceAll(/\W/g, "\\$&")).join("|"), "g");
/** What each caller must not learn. */
const hiddenTexts = new Map(world.callers.map((caller) => [caller, anyOf(hiddenFrom(world, caller).texts)]));
/** What none of them is told, although their calls may change it. */
const ofOperator = anyOf(world.webhooks.flatMap((each) => each.ofOperator));

/** What a text tells the caller of others, beyond what it was asked with. */
function told(
  caller: WorldKey,
  text: string,
  request: object,
  hidden = hiddenTexts.get(caller) as RegExp,
): string[] {
  const sent = JSON.stringify(request, (_, value) => (typeof value === "bigint" ? String(value) : value));
  return (text.match(hidden) ?? []).filter((each) => !sent.includes(each));
}

/** One call; its answer, or error, as text that holds everything the caller learns. */
async function call(
  method: DescMethod,
  caller: WorldKey,
  request: object,
  transport?: Transport,
): Promise<string> {
  try {
    return answerText(method, await callMethod(api, method, caller.secret, request, transport), caller);
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    const { code, rawMessage, details } = error;
    return JSON.stringify([code, rawMessage, details.map((each) => ("debug" in each ? each.debug : each))]);
  }
}

/** Takes the webhooks that the contract shows out of an answer, once they are found to show nothing more. */
function answerText(method: DescMethod, message: Message, caller: WorldKey): string {
  const { output } = method;
  if (!showsAll(method)) return JSON.stringify(toJson(output, message));
  const ofOthers = hiddenFrom(world, caller).webhooks.filter((each) => isInInstance(caller, each));
  const hidden = new Set(ofOthers.map(({ id }) => String(id)));
  const answer = toJson(output, message) as { webhooks?: { id: string }[]; webhook?: { id: string } };
  const shown = answer.webhooks ?? (answer.webhook ? [answer.webhook] : []);
  const others = shown.filter(({ id }) => hidden.has(id));
  for (const other of others) expect(CONTRACT_FIELDS).toEqual(expect.arrayContaining(Object.keys(other)));
  const rest = { ...answer, webhook: undefined, webhooks: shown.filter(({ id }) => !hidden.has(id)) };
  // The warning of CreateWebhook names the webhook that is shown.
  return others.reduce((text, { id }) => text.replaceAll(id, ""), JSON.stringify(rest));
}

test.each(METHODS)(
  "%s: a key of an app or a customer learns and changes nothing of others'",
  async (_, method) => {
    const requests = requestsOf(method.input, world);
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...world.callers),
        PROTOCOL,
        requests,
        async (caller, protocol, request) => {
          await changes();
          const answer = await call(method, caller, request, transportOf(protocol, caller));
          const changed = await changes();
          try {
            expect(told(caller, answer, request), answer).toEqual([]);
            expect(told(caller, answer, request, ofOperator), answer).toEqual([]);
            for (const { before, after } of changed.filter(
              (change) => !isForAll(method, request, change, caller),
            ))
              expect(told(caller, `${before} ${after}`, request), after ?? "").toEqual([]);
            for (const { before, after } of changed.filter(({ table }) => table === "api_keys"))
              expectOwnRights(caller, JSON.parse(after ?? before ?? ""));
          } finally {
            await all.undo(changed);
          }
        },
      ),
      { numRuns: RUNS, ...(SEED === undefined ? {} : { seed: Number(SEED) }) },
    );
  },
);

/** Whether keys of every app may make the change: a webhook that any key of the instance may delete, and deliveries of an event. */
function isForAll(
  { name, parent }: DescMethod,
  request: object,
  { table, before, after }: ChangedRow,
  caller: WorldKey,
): boolean {
  if (parent.name === "EventService") return table === "queue";
  if (name !== "DeleteWebhook") return false;
  const { webhookId } = request as { webhookId: bigint };
  const deleted = world.webhooks.find(({ id }) => id === webhookId);
  if (deleted && !isInInstance(caller, deleted)) return false;
  const ids = [String(webhookId), deleted?.endpointId ?? [], deleted?.deliveryIds ?? []].flat();
  return ids.some((id) => `${before} ${after}`.includes(id));
}

/** A key of an app or a customer makes, changes and removes keys of its customer and app with at most its own rights. */
function expectOwnRights(
  caller: WorldKey,
  key: {
    customer: string | null;
    installed_app_id: string | null;
    permissions: number[];
    allowed_processes: number[];
  },
): void {
  expect(key.customer).toBe(caller.customer);
  if (caller.appId !== null) expect(key.installed_app_id).toBe(caller.appId);
  expect(caller.permissions).toEqual(expect.arrayContaining(key.permissions));
  if (caller.processes.length === 0) return;
  expect(key.allowed_processes).not.toEqual([]);
  expect(caller.processes).toEqual(expect.arrayContaining(key.allowed_processes));
}

/** Whom a key belongs to, as the document names it. */
function ownerOf({ customer, appId }: WorldKey): KeyOwner {
  if (customer === null) return appId === null ? "operator" : "app";
  return appId === null ? "customer" : "both";
}

const served = new Map(METHODS);
const refusals = [...reachingMethods()].flatMap(([name]) =>
  served.has(name)
    ? (["app", "customer", "both"] as const).map((owner) => [name, owner, reachOf(name)[owner]] as const)
    : [],
);

test.each(refusals)(
  "%s is refused to a key of %s if the document says so: %s",
  async (name, owner, reach) => {
    const method = served.get(name) as DescMethod;
    // A key with all permissions that it can have: others are refused for want of one.
    const caller = world.callers.find(
      (each) => ownerOf(each) === owner && each.processes.length === 0,
    ) as WorldKey;
    const codes = await Promise.all(
      fc.sample(requestsOf(method.input, world), { numRuns: 40, seed: 1 }).map(async (request) => {
        const error = await callMethod(api, method, caller.secret, request).then(
          () => undefined,
          (thrown: ConnectError) => thrown.code,
        );
        return error;
      }),
    );
    await all.undo(await changes());
    const isRefused = codes.every((code) => code === Code.PermissionDenied || code === Code.InvalidArgument);
    expect([isRefused, codes]).toEqual([reach === "refused", codes]);
  },
);

test("and the test would notice: a key of the operator learns of others", async () => {
  const keyless = world.keys.find(
    ({ customer, appId, processes }) => customer === null && appId === null && processes.length === 0,
  ) as WorldKey;
  const method = METHODS.find(([name]) => name === "DeliveryService.ListDeliveries")?.[1] as DescMethod;
  const answer = await call(method, keyless, { pageSize: 1_000 });
  const { deliveryIds } = world.webhooks.find(({ appId }) => appId === world.appB.id) ?? { deliveryIds: [] };
  for (const id of deliveryIds) expect(answer).toContain(id);
});
