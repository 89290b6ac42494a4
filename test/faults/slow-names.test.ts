import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { EventService, WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../src/db/database.ts";
import { NameResolver } from "../../src/delivery/http/name-resolver.ts";
import { type NameServer, startNameServer } from "../support/name-server.ts";
import { keyedTransport, trustedAuthority } from "../support/test-service.ts";
import { type ScriptedService, startScriptedService } from "./scripted-service.ts";
import { setTrapOnBlockedPort, type Trap } from "./trap.ts";

const HEALTHY = "healthy.example";
const SLOW = ["a.slow.example", "b.slow.example", "c.slow.example"];
const EVENTS = 5;
/** How long a lookup may take, in seconds. */
const LOOKUP_S = 2;

interface Recorded {
  host: string;
  state: string;
  number: number;
  status: number | null;
  error: string | null;
  ended: Date;
}

let nameServer: NameServer;
let resolver: NameResolver;
let service: ScriptedService;
let receiver: Receiver;
let trap: Trap;

beforeAll(async () => {
  nameServer = await startNameServer(({ name }) =>
    name === HEALTHY ? { addresses: ["127.0.0.1"], ttl: 0 } : undefined,
  );
  resolver = new NameResolver({ servers: [nameServer.address], timeoutMs: LOOKUP_S * 1_000 });
  service = await startScriptedService(
    {
      DISPATCH_INTERVAL: "1s",
      RETRY_INITIAL_DELAY: "200ms",
      RETRY_BACKOFF_COEFFICIENT: "1.5",
      HEARTBEAT_TIMEOUT: "20s",
      DELIVERY_ALLOWED_NETWORKS: "127.0.0.1/32",
    },
    resolver,
  );
  // Each delivery needs a connection, and so a lookup, of its own.
  receiver = await startReceiver(await (await trustedAuthority()).issue([HEALTHY]), (_request, response) => {
    response.writeHead(200, { connection: "close" }).end();
    return undefined;
  });
  trap = await setTrapOnBlockedPort();
});

afterAll(async () => {
  await service?.stop();
  await Promise.all([receiver?.close(), trap?.close(), nameServer?.close()]);
});

const transport = () => keyedTransport(service.api.grpcPort as number, service.api.adminKey);

async function register(url: string): Promise<bigint> {
  const { webhook } = await createClient(WebhookService, transport()).createWebhook({
    process: WebhookProcess.ORDER_DISPATCHED,
    url,
  });
  return webhook?.id as bigint;
}

async function publish(count: number): Promise<void> {
  const client = createClient(EventService, transport());
  for (let n = 1; n <= count; n += 1) {
    await client.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "tenant-1",
      data: {
        case: "orderDispatched",
        value: { orderId: BigInt(n), orderNumber: `SO-${n}`, dispatchedAt: { seconds: 1_790_000_000n } },
      },
    });
  }
}

/** The recorded attempts on hosts that match, by their end. */
function attempts(host: string): Promise<Recorded[]> {
  return rows<Recorded>(
    service.api.context.db,
    `select substring(w.url from '//([^/:]+)') as host, d.state, a.number, a.status, a.error,
        a.started + a.duration_ms * interval '1 ms' as ended
      from all_attempts a join all_deliveries d on d.id = a.delivery_id join webhooks w on w.id = d.webhook_id
      where w.url like '%' || :host || '%' order by ended`,
    { host },
  );
}

const slowQuestions = () => nameServer.questions.filter(({ name }) => name !== HEALTHY).length;

test("names whose lookups hang fail their own deliveries only, and hold up nobody else's", async () => {
  await register(`https://${HEALTHY}:${receiver.port}/hooks`);
  for (const host of SLOW) await register(`https://${host}/hooks`);
  await publish(1);
  await service.startWorker();
  await expect.poll(() => new Set(nameServer.questions.map(({ name }) => name)).size).toBe(4);
  await publish(EVENTS);
  await receiver.until((received) => received.length === 1 + EVENTS);
  await expect.poll(() => attempts(SLOW[0] as string)).not.toEqual([]);

  const healthy = await attempts(HEALTHY);
  expect(healthy).toHaveLength(1 + EVENTS);
  for (const attempt of healthy) expect(attempt).toMatchObject({ number: 1, status: 200, error: null });
  const slow = await attempts(".slow.example");
  for (const { host, status, error } of slow) {
    expect({ status, error }).toEqual({
      status: null,
      error: `DNS lookup of ${host} timed out after ${LOOKUP_S} s`,
    });
  }
  expect(healthy.at(-1)?.ended.getTime()).toBeLessThan(slow[0]?.ended.getTime() as number);
});

test("names whose lookups hang leave nothing behind once their webhooks are deleted", async () => {
  const { db } = service.api.context;
  const client = createClient(WebhookService, transport());
  const { webhooks } = await client.listWebhooks({});
  for (const { id, url } of webhooks) {
    if (url.includes(".slow.example")) await client.deleteWebhook({ webhookId: id });
  }
  const open = () =>
    rows(
      db,
      "select 1 from all_deliveries d join webhooks w on w.id = d.webhook_id where d.finished is null and w.url like '%.slow.example%'",
    );
  await expect.poll(open, { timeout: 60_000 }).toEqual([]);
  await expect.poll(() => resolver.size, { timeout: 60_000 }).toEqual({ running: 0, cached: 0 });

  const questions = slowQuestions();
  const before = receiver.received.length;
  await publish(EVENTS);
  await receiver.until((received) => received.length === before + EVENTS);
  expect(slowQuestions()).toBe(questions);
  for (const attempt of await attempts(HEALTHY)) expect(attempt).toMatchObject({ number: 1, status: 200 });
});

test("a webhook that has a blocked port already fails visibly, without a socket", async () => {
  const id = await register(`https://${HEALTHY}/blocked`);
  await rows(
    service.api.context.db,
    "update webhooks set target_url = :url, url = :url where id = :id::bigint returning id",
    { id, url: `https://${HEALTHY}:${trap.port}/blocked` },
  );
  await publish(1);
  await expect
    .poll(async () => (await attempts("/blocked")).map(({ status, error }) => ({ status, error })), {
      timeout: 60_000,
    })
    .toContainEqual({
      status: null,
      error: `address refused: port ${trap.port} belongs to another protocol; use the port of an HTTPS server (an operator can allow port ${trap.port} with DELIVERY_ALLOWED_PORTS)`,
    });
  expect(trap.connections()).toBe(0);
});
