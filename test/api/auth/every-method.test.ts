import { type DescMethod, type DescService, type Message, toJson } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import {
  type CallOptions,
  type Client,
  ConnectError,
  createClient,
  type Transport,
} from "@connectrpc/connect";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebhookSchema } from "../../../gen/webhook/v1/webhook_pb.ts";
import { SERVICES } from "../../../src/api/routes.ts";
import { grpc } from "../../support/clients.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";
import { REQUESTS } from "./isolated-requests.ts";
import { changedKeys, deliveriesOf, keep, restore, rowsOf } from "./isolated-snapshot.ts";
import { buildWorld, hiddenFrom, type World, type WorldKey } from "./isolated-world.ts";

/** How many requests are made of each method. */
const RUNS = Number(process.env.ISOLATION_RUNS ?? 8);
const SEED = process.env.FUZZ_SEED;

/** What the contract (2.1) shows of every webhook to every key. */
const CONTRACT_FIELDS = ["id", "created", "modified", "webhookProcess", "url", "application"];
/** Methods that show every webhook by these fields: those of the contract. */
const SHOWS_ALL = ["ListWebhooks", "CreateWebhook", "DeleteWebhook"];

const METHODS = SERVICES.flatMap((service) =>
  service.methods.map((method): [string, DescMethod] => [`${service.name}.${method.name}`, method]),
);

let api: TestApi;
let world: World;
beforeAll(async () => {
  api = await startTestApi();
  world = await buildWorld(api);
  await keep(api.context.db);
});
afterAll(() => api.stop());

/** Any service's methods, by their names. */
type AnyClient = Record<string, (request: unknown, options?: CallOptions) => unknown>;

/** A connection for each key. */
const transports = new Map<string, Transport>();

/** One call; its answer, or error, as text that holds everything the caller learns. */
async function call(method: DescMethod, caller: WorldKey, request: object): Promise<string> {
  const transport = transports.get(caller.secret) ?? grpc(api, caller.secret);
  transports.set(caller.secret, transport);
  const client = createClient(method.parent, transport) as Client<DescService> as AnyClient;
  const send = client[method.localName] as AnyClient[string];
  try {
    if (method.methodKind === "server_streaming") {
      const leaving = new AbortController();
      for await (const answer of send(request, { signal: leaving.signal }) as AsyncIterable<Message>) {
        leaving.abort();
        return answerText(method, answer, caller);
      }
    }
    const stream = async function* () {
      yield request;
    };
    const answer = await send(method.methodKind === "client_streaming" ? stream() : request);
    return answerText(method, answer as Message, caller);
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    const { code, rawMessage, details } = error;
    return JSON.stringify([code, rawMessage, details.map((each) => ("debug" in each ? each.debug : each))]);
  }
}

/** Takes the webhooks that the contract shows out of an answer, once they are found to show nothing more. */
function answerText({ name, output }: DescMethod, message: Message, caller: WorldKey): string {
  if (!SHOWS_ALL.includes(name)) return JSON.stringify(toJson(output, message));
  const hidden = new Set(hiddenFrom(world, caller).webhooks.map(({ id }) => String(id)));
  const answer = toJson(output, message) as { webhooks?: { id: string }[]; webhook?: { id: string } };
  const shown = answer.webhooks ?? (answer.webhook ? [answer.webhook] : []);
  const others = shown.filter(({ id }) => hidden.has(id));
  for (const other of others) expect(CONTRACT_FIELDS).toEqual(expect.arrayContaining(Object.keys(other)));
  const rest = { ...answer, webhook: undefined, webhooks: shown.filter(({ id }) => !hidden.has(id)) };
  // The warning of CreateWebhook names the webhook that is shown.
  return others.reduce((text, { id }) => text.replaceAll(id, ""), JSON.stringify(rest));
}

const named = (request: object) =>
  JSON.stringify(request, (_, value) => (typeof value === "bigint" ? String(value) : value));

test("every method has requests to be called with", () => {
  expect(Object.keys(REQUESTS).toSorted()).toEqual(METHODS.map(([name]) => name).toSorted());
});

test("a webhook has the contract's six fields and others, which are hidden", () => {
  const fields = WebhookSchema.fields.map(({ jsonName }) => jsonName);
  expect(fields).toEqual(expect.arrayContaining(CONTRACT_FIELDS));
  expect(fields.length).toBeGreaterThan(CONTRACT_FIELDS.length);
});

test.each(METHODS)("%s: a key of an app learns and changes nothing of others'", async (name, method) => {
  const { db } = api.context;
  const requests = REQUESTS[name]?.(world) as fc.Arbitrary<object>;
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...world.callers), requests, async (caller, request) => {
      const hidden = hiddenFrom(world, caller);
      const deleted =
        method.name === "DeleteWebhook" ? (request as { webhookId: bigint }).webhookId : undefined;
      const kept = { ...hidden, webhooks: hidden.webhooks.filter(({ id }) => id !== deleted) };
      const queues = method.parent.name === "EventService";
      const state = () => Promise.all([rowsOf(db, kept), deliveriesOf(db, hidden.webhooks), changedKeys(db)]);
      const [before, waiting] = await state();
      try {
        const answer = await call(method, caller, request);
        const sent = named(request);
        const secrets = [
          ...hidden.webhooks.flatMap(({ id, settings, markers }) => [String(id), ...settings, ...markers]),
          ...hidden.keys.flatMap(({ markers }) => markers),
          world.appB.id,
          world.appB.name,
        ];
        const told = secrets.filter((secret) => answer.includes(secret) && !sent.includes(secret));
        expect(told, answer).toEqual([]);
        const [after, waitingAfter, changed] = await state();
        expect(after).toEqual(before);
        // Publishing is for all: it queues for every app's webhooks.
        if (!queues) expect(waitingAfter).toBe(waiting);
        for (const key of changed) {
          expect(key.appId).toBe(world.appA.id);
          expect(caller.permissions).toEqual(expect.arrayContaining(key.permissions));
          if (caller.processes.length > 0) {
            expect(key.processes).not.toEqual([]);
            expect(caller.processes).toEqual(expect.arrayContaining(key.processes));
          }
        }
      } finally {
        if (method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS) await restore(db);
      }
    }),
    { numRuns: RUNS, ...(SEED === undefined ? {} : { seed: Number(SEED) }) },
  );
});

test("and the test would notice: a key without an app learns of others", async () => {
  const keyless = world.keys.find(
    ({ appId, processes }) => appId === null && processes.length === 0,
  ) as WorldKey;
  const method = METHODS.find(([name]) => name === "DeliveryService.ListDeliveries")?.[1] as DescMethod;
  const answer = await call(method, keyless, { pageSize: 1_000 });
  const { deliveryIds } = world.webhooks.find(({ appId }) => appId === world.appB.id) ?? { deliveryIds: [] };
  for (const id of deliveryIds) expect(answer).toContain(id);
});
