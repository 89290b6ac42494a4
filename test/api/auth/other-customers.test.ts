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

/** What a call tells: its answer, or its error. */
async function told(method: DescMethod, caller: WorldKey, request: object): Promise<string> {
  const isRead = method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
  try {
    const answer = toJson(method.output, await callMethod(api, method, caller.secret, request));
    const text = JSON.stringify(answer).replaceAll(TIMES, "");
    return isRead ? text : text.replaceAll(MADE, "");
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    const { code, rawMessage, details } = error;
    return JSON.stringify([code, rawMessage, details.map((each) => ("debug" in each ? each.debug : each))]);
  }
}

/** Calls of every method with keys, each undone. */
async function toldOf(callers: readonly WorldKey[], rows: KeptRows): Promise<Map<string, string>> {
  const answers = new Map<string, string>();
  for (const [name, method] of METHODS)
    for (const [index, caller] of callers.entries()) {
      const requests = fc.sample(requestsOf(method.input, world), { numRuns: RUNS, seed: SEED + index });
      for (const request of requests) {
        await changes();
        const what = `${name} with ${caller.markers[1]}: ${fc.stringify(request)}`;
        answers.set(what, await told(method, caller, request));
        await rows.undo(await changes());
      }
    }
  return answers;
}

test.each([
  ["the operator's apps", null],
  ["a customer", world.customers[0] as string],
])("%s: each method answers as if other customers and their webhooks did not exist", async (_, customer) => {
  const callers = world.callers.filter((each) => each.customer === customer);
  const amongOthers = await toldOf(callers, all);
  await removeOthers(db, customer);
  const alone = await toldOf(callers, await keepRows(db, `alone_${customer === null ? 0 : 1}`));
  await all.undo();
  expect(amongOthers.size).toBeGreaterThan(METHODS.length);
  const differing = [...amongOthers].filter(([what, answer]) => alone.get(what) !== answer);
  expect(
    differing.map(([what, answer]) => [what, answer, alone.get(what)]),
    `seed ${SEED}`,
  ).toEqual([]);
});
