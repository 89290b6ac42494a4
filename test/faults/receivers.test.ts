import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { EventService, type WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../src/db/database.ts";
import { NameResolver, type Resolver } from "../../src/delivery/http/name-resolver.ts";
import { keyedTransport, trustedAuthority } from "../support/test-service.ts";
import { answers, endless } from "./misbehaviour.ts";
import { RECEIVER_CASES, type ReceiverCase } from "./receiver-cases.ts";
import { type ScriptedService, startScriptedService } from "./scripted-service.ts";
import { setTrap, type Trap } from "./trap.ts";

const TIMEOUT_MS = 3_000;
const DAY = 86_400_000;
/** To one receiver that never answers: more than wait for a webhook in a worker. */
const CROWD = 200;
const HEALTHY_WEBHOOKS = 5;
const HEALTHY_EVENTS = 20;
const ONE_GIGABYTE = 1e9;
const [CROWDED, BAD, HEALTHY] = [3, 1, 2] as const;

/** One recorded attempt with its delivery's end. */
interface Recorded {
  state: string;
  finished: Date;
  number: number;
  started: Date;
  duration_ms: number;
  status: number | null;
  error: string | null;
  response_start: string | null;
}

let service: ScriptedService;
const receivers: Receiver[] = [];
const traps: Trap[] = [];
const subjects = new Map<string, { webhookId: bigint; receiver: Receiver | undefined }>();
const gigabyte = endless(ONE_GIGABYTE);
let httpTrap: Trap;
let addressTrap: Trap;
let rebindings = 0;
let healthy: bigint[];
let silent: Receiver;

const system = new NameResolver();
/** Names of the cases; whoever looks `rebinding.example` up a second time is led astray. */
const names: Resolver = {
  async resolve(hostname) {
    if (hostname === "private.example") return [{ address: "127.0.0.2", family: 4 }];
    if (hostname !== "rebinding.example") return system.resolve(hostname);
    rebindings += 1;
    return [{ address: rebindings === 1 ? "127.0.0.1" : "127.0.0.2", family: 4 }];
  },
  close: () => system.close(),
};

async function trap(address: string, port?: number): Promise<Trap> {
  const set = await setTrap(address, port);
  traps.push(set);
  return set;
}

beforeAll(async () => {
  service = await startScriptedService(
    {
      DISPATCH_INTERVAL: "1s",
      RETRY_INITIAL_DELAY: "200ms",
      RETRY_BACKOFF_COEFFICIENT: "1.5",
      HEARTBEAT_TIMEOUT: "20s",
      DELIVERY_TIMEOUT: `${TIMEOUT_MS}ms`,
      // Not the whole of 127.0.0.0/8: the traps on 127.0.0.2 can be dialled and must not be.
      DELIVERY_ALLOWED_NETWORKS: "127.0.0.1/32",
    },
    names,
  );
  httpTrap = await trap("127.0.0.1");
  addressTrap = await trap("127.0.0.1");
  await registerCases();
  healthy = [];
  for (let n = 0; n < HEALTHY_WEBHOOKS; n += 1) {
    healthy.push(await register(HEALTHY, (await receiver()).url));
  }
  silent = await receiver(() => undefined);
  await register(CROWDED, silent.url);

  await publish(CROWDED, CROWD);
  await service.startWorker();
  await silent.until((received) => received.length > 0);
  await publish(BAD, 1);
  await publish(HEALTHY, HEALTHY_EVENTS);
  await untilFinal(healthy);
  const cases = [...subjects.values()].map(({ webhookId }) => webhookId);
  await untilFinal(cases);
});

afterAll(async () => {
  await service?.stop();
  await Promise.all([...receivers, ...traps].map((listener) => listener.close()));
});

async function receiver(reply?: Reply, kind?: ReceiverCase["certificate"]): Promise<Receiver> {
  const authority = kind === "unknown authority" ? await createLocalAuthority() : await trustedAuthority();
  const hosts =
    kind === "other host" ? ["other.example"] : ["localhost", "private.example", "rebinding.example"];
  const past =
    kind === "expired"
      ? { notBefore: new Date(Date.now() - 3 * DAY), notAfter: new Date(Date.now() - DAY) }
      : {};
  const started = await startReceiver(await authority.issue(hosts, past), reply);
  receivers.push(started);
  return started;
}

async function registerCases(): Promise<void> {
  const more: Record<string, Reply> = {
    "redirects to http": answers(307, { location: `http://localhost:${httpTrap.port}/` }),
    "redirects to 127.0.0.1": answers(302, { location: `https://127.0.0.1:${addressTrap.port}/` }),
    "sends 1 GB": gigabyte.reply,
  };
  const all = [
    ...RECEIVER_CASES,
    ...Object.entries(more).map(([title, reply]) => ({ title, reply, host: "localhost" })),
  ];
  for (const { title, host = "localhost", ...rest } of all) {
    const started = await receiver(rest.reply, "certificate" in rest ? rest.certificate : undefined);
    if (host.endsWith(".example")) await trap("127.0.0.2", started.port);
    const webhookId = await register(BAD, started.url.replace("localhost", host));
    subjects.set(title, { webhookId, receiver: started });
  }
}

async function register(process: number, url: string): Promise<bigint> {
  const { api } = service;
  const client = createClient(WebhookService, keyedTransport(api.grpcPort as number, api.adminKey));
  const { webhook } = await client.createWebhook({ process: process as WebhookProcess, url: `${url}/hooks` });
  return webhook?.id as bigint;
}

async function publish(process: number, count: number): Promise<void> {
  const { api } = service;
  const client = createClient(EventService, keyedTransport(api.grpcPort as number, api.adminKey));
  const at = { seconds: 1_790_000_000n };
  const data = {
    [BAD]: { case: "orderDispatched", value: { orderId: 1n, orderNumber: "SO-1", dispatchedAt: at } },
    [HEALTHY]: {
      case: "documentCreated",
      value: { documentId: 1n, kind: 1, number: "INV-1", createdAt: at },
    },
    [CROWDED]: {
      case: "stockLevelChanged",
      value: { productId: 1n, sku: "LAMP-01", location: "A", level: 1n, changedAt: at },
    },
  }[process] as Parameters<typeof client.publishEvent>[0]["data"];
  const one = () =>
    client.publishEvent({ idempotencyKey: randomUUID(), userId: "tenant-1", data: data as never });
  await Promise.all(Array.from({ length: count }, one));
}

async function untilFinal(webhookIds: readonly bigint[]): Promise<void> {
  const through = async () => {
    const open = await rows(
      service.api.context.db,
      "select 1 from all_deliveries where finished is null and webhook_id = any(:webhookIds::bigint[])",
      { webhookIds },
    );
    return open.length === 0;
  };
  await vi.waitUntil(through, { timeout: 200_000, interval: 100 });
}

function recorded(webhookId: bigint): Promise<Recorded[]> {
  return rows<Recorded>(
    service.api.context.db,
    `select d.state, d.finished, a.* from all_deliveries d join all_attempts a on a.delivery_id = d.id
      where d.webhook_id = :webhookId::bigint order by a.started, a.number`,
    { webhookId },
  );
}

const endOf = ({ started, duration_ms }: Recorded) => started.getTime() + duration_ms;
const matching = (expected: string | RegExp | null) =>
  expected instanceof RegExp ? expect.stringMatching(expected) : expected;

describe("a receiver that", () => {
  test.each(RECEIVER_CASES)("$title has the outcome and the record that it should", async (expected) => {
    const { webhookId, receiver: its } = subjects.get(expected.title) as {
      webhookId: bigint;
      receiver: Receiver;
    };
    const attempts = await recorded(webhookId);
    expect(attempts.map(({ number, status, error }) => [number, status, error])).toEqual(
      expected.attempts.map(([status, error], index) => [index + 1, status, matching(error)]),
    );
    expect(attempts[0]).toMatchObject({
      state: expected.state,
      response_start: matching(expected.responseStart),
    });
    expect(its.received).toHaveLength(expected.requests);
    const [first, second] = attempts as [Recorded, Recorded];
    if (expected.waitMs)
      expect(second.started.getTime() - endOf(first)).toBeGreaterThanOrEqual(expected.waitMs);
  });

  test.each([
    ["redirects to http", 307, () => httpTrap],
    ["redirects to 127.0.0.1", 302, () => addressTrap],
  ])("%s gets the four requests, and where it leads to gets none", async (title, status, its) => {
    const { webhookId, receiver: from } = subjects.get(title) as { webhookId: bigint; receiver: Receiver };
    const attempts = await recorded(webhookId);
    expect(attempts.map((attempt) => attempt.status)).toEqual(Array(4).fill(status));
    expect(attempts[0]?.state).toBe("failed");
    expect(from.received).toHaveLength(4);
    expect(its().connections()).toBe(0);
  });

  test("sends 1 GB is cut off; the status decides and the first 1 KiB is kept", async () => {
    const { webhookId } = subjects.get("sends 1 GB") as { webhookId: bigint };
    const attempts = await recorded(webhookId);
    expect(attempts).toMatchObject([
      { state: "delivered", status: 200, error: null, response_start: "x".repeat(1_024) },
    ]);
    expect(gigabyte.sent()).toBeLessThan(ONE_GIGABYTE / 20);
  });
});

describe("beside them", () => {
  test("no address is dialled but the one that was checked", () => {
    expect(traps.map((its) => its.connections())).toEqual(traps.map(() => 0));
    // Once a connection: a second look-up for the same connection could lead elsewhere.
    expect(rebindings).toBe(4);
  });

  test("no attempt takes longer than its time-out", async () => {
    const all = await rows<Recorded>(service.api.context.db, "select * from all_attempts");
    // What a busy machine adds to a timer is no fault of the attempt; without one, some would never have ended.
    expect(Math.max(...all.map(({ duration_ms }) => duration_ms))).toBeLessThan(4 * TIMEOUT_MS);
  });

  test("healthy receivers have everything before one that hangs has used up its attempts", async () => {
    const ends = (await Promise.all(healthy.map(recorded))).flat();
    expect(ends).toHaveLength(HEALTHY_WEBHOOKS * HEALTHY_EVENTS);
    expect(new Set(ends.map(({ number, status }) => `${number}: ${status}`))).toEqual(new Set(["1: 200"]));
    const hanging = await recorded(subjects.get("never answers")?.webhookId as bigint);
    const last = endOf(hanging.at(-1) as Recorded);
    expect(Math.max(...ends.map(endOf))).toBeLessThan(last);
    expect(Math.max(...ends.map(({ finished }) => finished.getTime()))).toBeLessThan(last);
  });
});

describe("a worker told to stop while a receiver hangs and more waits for it", () => {
  test("ends what is in flight, sends nothing more, and gives the rest back", async () => {
    const before = silent.received.length;
    await service.stopWorker();
    // One may have been on its way.
    expect(silent.received.length - before).toBeLessThanOrEqual(1);
    const [claimed] = await rows<{ n: number }>(
      service.api.context.db,
      "select count(*)::int as n from all_deliveries where claimed_by is not null",
    );
    expect(claimed).toEqual({ n: 0 });
  });
});
