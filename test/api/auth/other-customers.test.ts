import { type DescMethod, toJson } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { callMethod, METHODS } from "../../support/any-method.ts";
import { watchRows } from "../../support/changed-rows.ts";
import { startTestApi } from "../../support/test-api.ts";
import { requestsOf } from "./isolated-requests.ts";
import { buildWorld, type WorldKey } from "./isolated-world.ts";
import { type KeptRows, keepRows, removeOthers } from "./kept-rows.ts";

/** How many requests are made of each method with each key. */
const RUNS = Number(process.env.ISOLATION_RUNS ?? 2);
const SEED = Number(process.env.FUZZ_SEED ?? Date.now());

const api = await startTestApi();
afterAll(() => api.stop());
const world = await buildWorld(api);
const { db } = api.context;
const changes = await watchRows(db);
const all = await keepRows(db, "everything");

/** Values that differ between two calls: times, and what a call makes. */
const TIMES = /\d{4}-\d\d-\d\dT[\d:.]+Z/g;
const MADE =
  /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b\d{16,}\b|(whk|whsec|whpk|whsk)_[\w+/=-]+|"prefix":"[^"]+"/g;

/** Noted now and then, beside the call. */
const LAST_USED = /,"lastUsed":""/g;
/** Of the last minutes. */
const ATTEMPTS = /,"failedAttempts(Before)?":"\d+"/g;
const QUEUED = /"deliveriesQueued":"?\d+"?/g;

/** Without the empty intervals of a history, whose number before and after others depends on the time. */
const withoutEmpty = (_: string, value: unknown) =>
  Array.isArray(value) ? value.filter((each) => Object.keys(Object(each)).join() !== "start") : value;

/** What a call tells: its answer, or its error. */
async function told(method: DescMethod, caller: WorldKey, request: object): Promise<string> {
  const isRead = method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
  try {
    const answer = toJson(method.output, await callMethod(api, method, caller.secret, request));
    const text = JSON.stringify(answer, withoutEmpty)
      .replaceAll(TIMES, "")
      .replaceAll(LAST_USED, "")
      .replaceAll(ATTEMPTS, "");
    if (isRead) return text;
    // Of an event, keys of the operator are told the number of all deliveries.
    const counted = caller.customer === null ? text.replaceAll(QUEUED, "") : text;
    return counted.replaceAll(MADE, "");
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    const { code, rawMessage, details } = error;
    return JSON.stringify([code, rawMessage, details.map((each) => ("debug" in each ? each.debug : each))]);
  }
}

/** A request to make with a key. */
interface Call {
  name: string;
  method: DescMethod;
  caller: WorldKey;
  request: object;
}

const callsOf = (callers: readonly WorldKey[], methods = METHODS, runs = RUNS): Call[] =>
  methods.flatMap(([name, method]) =>
    callers.flatMap((caller, index) =>
      fc
        .sample(requestsOf(method.input, world), { numRuns: runs, seed: SEED + index })
        .map((request) => ({ name, method, caller, request })),
    ),
  );

/** Lists and counts that the operator narrows to a customer. */
const NARROWED = METHODS.filter(
  ([, { input, idempotency, methodKind }]) =>
    input.fields.some(({ name }) => name === "customer") &&
    (idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS || methodKind === "server_streaming"),
);
const operator = world.keys.find(
  ({ customer, appId, processes }) => customer === null && appId === null && processes.length === 0,
) as WorldKey;

/** What each of some calls tells. Their changes are undone. */
async function toldOf(calls: readonly Call[], rows: KeptRows): Promise<string[]> {
  const answers: string[] = [];
  for (const { method, caller, request } of calls) {
    await changes();
    answers.push(await told(method, caller, request));
    await rows.undo(await changes());
  }
  return answers;
}

test.each([
  ["the operator's apps", null],
  ["a customer", world.customers[0] as string],
])("%s: each method answers as if other customers and their webhooks did not exist", async (_, customer) => {
  const calls = callsOf(world.callers.filter((each) => each.customer === customer));
  if (customer !== null)
    for (const call of callsOf([operator], NARROWED, 4 * RUNS))
      calls.push({ ...call, request: { ...call.request, customer } });
  const amongOthers = await toldOf(calls, all);
  await removeOthers(db, customer, operator.id);
  const alone = await toldOf(calls, await keepRows(db, `alone_${customer === null ? 0 : 1}`));
  await all.undo();
  const differing = calls.flatMap(({ name, caller: { id: _id, secret: _secret, ...caller }, request }, n) =>
    amongOthers[n] === alone[n]
      ? []
      : [
          {
            name,
            caller: fc.stringify(caller),
            request: fc.stringify(request),
            amongOthers: amongOthers[n],
            alone: alone[n],
          },
        ],
  );
  expect(differing, `seed ${SEED}`).toEqual([]);
});
