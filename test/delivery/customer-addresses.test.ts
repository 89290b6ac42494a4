import { randomUUID } from "node:crypto";
import pino from "pino";
import { expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import type { OAuth2Client } from "../../src/contract/target-rules.ts";
import { verdictOf } from "../../src/delivery/limits/verdict.ts";
import { createGuards } from "../../src/delivery/request/guards.ts";
import { createRequestTrial } from "../../src/delivery/request/trial.ts";
import { createHttpClient } from "../../src/lib/egress/http-client.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { NO_REQUEST_SETTINGS, writeRequestSettings } from "../../src/webhooks/request-settings.ts";
import { startConnectProxy } from "../lib/egress/proxies.ts";
import { queueEvents } from "../queue/queue.ts";
import { aReceiver, localCertificate, trustedAuthority } from "../support/receivers.ts";
import { type EngineParts, freshRun, pump, queueFor, useEngine } from "./engine-parts.ts";
import { namesAt, noting, send } from "./http-parts.ts";

const LOOPBACK = "127.0.0.0/8";
const OPERATORS = { DELIVERY_ALLOWED_NETWORKS: LOOPBACK, CUSTOMER_ALLOWED_NETWORKS: "" };
const CUSTOMERS = { DELIVERY_ALLOWED_NETWORKS: "", CUSTOMER_ALLOWED_NETWORKS: LOOPBACK };
const BOTH = { DELIVERY_ALLOWED_NETWORKS: LOOPBACK, CUSTOMER_ALLOWED_NETWORKS: LOOPBACK };
const REFUSED = /^address refused: .*with CUSTOMER_ALLOWED_NETWORKS\)$/;

type Owner = "operator" | "customer";
const OTHER = { operator: "customer", customer: "operator" } as const;

/** An engine with a webhook of the operator and one of a customer, at the same origin. */
async function useTwo(origin: string, ...given: Parameters<typeof useEngine>) {
  const parts = await useEngine(...given);
  const { db, engine } = parts;
  const ids = await queueFor(parts, origin, { webhooks: 2, events: 0 });
  const [operator, customer] = ids as [bigint, bigint];
  await db("webhooks").where({ id: customer }).update({ customer: "acme" });
  const webhooks = { operator, customer };
  /** Delivers an event to the webhook of the owner; answers the error, or null once it is delivered. */
  async function deliver(owner: Owner): Promise<string | null> {
    await queueEvents(db, [webhooks[owner]]);
    await pump(engine, await freshRun(db));
    const [latest] = await rows<{ state: string; error: string | null }>(
      db,
      `select d.state, a.error from all_deliveries d left join attempts a on a.delivery_id = d.id
        where d.webhook_id = :id::bigint order by d.id desc limit 1`,
      { id: webhooks[owner] },
    );
    return latest?.state === "delivered" ? null : (latest?.error ?? "none");
  }
  return { ...parts, webhooks, deliver };
}

/** Stores OAuth 2.0 credentials for webhooks. */
async function authenticate({ db, secrets }: EngineParts, ids: readonly bigint[], tokenUrl: string) {
  const client: OAuth2Client = {
    tokenUrl,
    clientId: "shop",
    clientSecret: "s3cret-s3cret",
    scope: null,
    audience: null,
    secretInBody: false,
  };
  const settings = { ...NO_REQUEST_SETTINGS, authentication: { kind: "oauth2" as const, client } };
  await writeRequestSettings(db, secrets, ids, settings);
}

test.each([
  ["localhost", OPERATORS, "operator"],
  ["127.0.0.1", OPERATORS, "operator"],
  ["127.0.0.1", CUSTOMERS, "customer"],
  ["localhost", { ...CUSTOMERS, DELIVERY_ALLOWED_HOSTS: "" }, "customer"],
  [
    "localhost",
    { ...OPERATORS, DELIVERY_ALLOWED_NETWORKS: "", DELIVERY_ALLOWED_HOSTS: "localhost" },
    "operator",
  ],
] as const)(
  "at %s with %j, only the webhook of the %s is reached, in any order, and over no connection of the other",
  async (host, settings, allowed) => {
    const receiver = await aReceiver();
    const { deliver } = await useTwo(`https://${host}:${receiver.port}`, settings);
    const refused = OTHER[allowed];
    const reason = refused === "customer" ? REFUSED : /^address refused: .*with DELIVERY_ALLOWED_/;
    expect(await deliver(refused)).toMatch(reason);
    expect(await deliver(allowed)).toBeNull();
    // The connection of the other is open, and idle.
    expect(await deliver(refused)).toMatch(reason);
    expect(await deliver(allowed)).toBeNull();
    expect(receiver.received).toHaveLength(2);
  },
);

test("where both may connect, they share neither a connection nor a TLS session", async () => {
  const receiver = await noting(await localCertificate(), { demands: false });
  const guards = createGuards(readConfig(BOTH).delivery);
  const client = createHttpClient(guards.operator, 10);
  onTestFinished(() => client.destroy());
  const customers = client.guardedBy(guards.customers);
  // The second request of each closes its connection, so that the third opens one.
  for (const path of ["/", "/close", "/"])
    for (const via of [client, customers])
      expect(await send(via, receiver.origin, { path })).toMatchObject({ status: 200 });
  const [operator, customer] = [0, 1].map((owner) => receiver.seen.filter((_, n) => n % 2 === owner));
  for (const own of [operator, customer]) {
    const [first, second, third] = own ?? [];
    expect(second?.port).toBe(first?.port);
    expect([first?.isResumed, third?.isResumed]).toEqual([false, true]);
  }
  expect(new Set(receiver.seen.map(({ port }) => port)).size).toBe(4);
});

test.each([
  ["operator", { webhook: "none", host: "failure" }],
  ["customers", { webhook: "failure", host: "none" }],
] as const)(
  "a refusal by the guard of %s has the effect %j: others may reach the host that customers may not",
  async (owner, verdict) => {
    const client = createHttpClient(createGuards(readConfig({}).delivery)[owner], 10);
    const outcome = await send(client, "https://127.0.0.1:8443");
    expect(verdictOf(outcome)).toEqual(verdict);
  },
);

test("a token that the operator's webhook has got is not used for a customer with the same credentials", async () => {
  const tokens = await aReceiver(
    (_request, response) => {
      response.end(JSON.stringify({ access_token: randomUUID(), token_type: "Bearer", expires_in: 3_600 }));
      return undefined;
    },
    await (await trustedAuthority()).issue(["tokens.example"]),
  );
  const receiver = await aReceiver();
  const parts = await useTwo(`https://127.0.0.1:${receiver.port}`, OPERATORS, {
    resolver: namesAt("127.0.0.1"),
  });
  await authenticate(parts, Object.values(parts.webhooks), `https://tokens.example:${tokens.port}/`);
  expect(await parts.deliver("operator")).toBeNull();
  expect(await parts.deliver("customer")).toMatch(
    /^token endpoint tokens\.example:\d+ cannot be reached: address refused: .*with CUSTOMER_ALLOWED_NETWORKS\)/,
  );
  expect(await parts.deliver("operator")).toBeNull();
  expect([tokens.received.length, receiver.received.length]).toEqual([1, 2]);
});

test("where both may ask the token endpoint, each gets its own token", async () => {
  const receiver = await aReceiver((request, response) => {
    const token = { access_token: randomUUID(), token_type: "Bearer", expires_in: 3_600 };
    response.end(request.path === "/token" ? JSON.stringify(token) : "");
    return undefined;
  });
  const parts = await useTwo(receiver.url, BOTH);
  await authenticate(parts, Object.values(parts.webhooks), `${receiver.url}/token`);
  for (const owner of ["operator", "customer", "operator", "customer"] as const)
    expect(await parts.deliver(owner)).toBeNull();
  const posts = receiver.received.filter(({ path }) => path !== "/token");
  const used = posts.map(({ headers }) => headers.authorization);
  expect(used).toEqual([used[0], used[1], used[0], used[1]]);
  expect([new Set(used).size, receiver.received.length]).toEqual([2, 6]);
});

test.each([
  [OPERATORS, "operator"],
  [CUSTOMERS, "customer"],
] as const)(
  "with %j, test requests and their token requests reach a receiver for the %s only",
  async (settings, allowed) => {
    const receiver = await aReceiver((_request, response) => {
      const cookie = { "set-cookie": "session=1" };
      response
        .writeHead(200, cookie)
        .end(`{"access_token":"abc","token_type":"Bearer","pad":"${"x".repeat(2_000)}"}`);
      return undefined;
    });
    const { db, secrets, webhooks } = await useTwo(receiver.url, settings);
    const { delivery } = readConfig({ ...settings, DELIVERY_TIMEOUT: "60s" });
    const log = pino({ level: "silent" });
    const trial = createRequestTrial({ db, secrets, guards: createGuards(delivery), delivery, log });
    const base = { oauth2: null, headers: [], tls: null, payload: "{}" };
    const oauth2 = { clientId: "i", clientSecret: "s", scope: null, audience: null, secretInBody: false };
    const attempt = async (owner: Owner, tokenUrl?: string) => {
      const webhookId = webhooks[owner];
      const [row] = await db("webhooks").where({ id: webhookId }).select("revision");
      const token = tokenUrl === undefined ? {} : { oauth2: { ...oauth2, tokenUrl } };
      return trial({ ...base, ...token, webhookId, revision: row?.revision as bigint });
    };
    for (const owner of [OTHER[allowed], allowed, OTHER[allowed]]) {
      const isAllowed = owner === allowed;
      const refused = { accepted: false, status: null, responseStart: null };
      for (const tokenUrl of [undefined, `${receiver.url}/token`]) {
        const outcome = await attempt(owner, tokenUrl);
        expect(outcome).toMatchObject(isAllowed ? { accepted: true, status: 200 } : refused);
        expect(outcome?.responseStart?.length ?? 0).toBeLessThanOrEqual(1_024 + 40);
        if (!isAllowed) expect(outcome?.error).toMatch(/address refused: /);
        expect(JSON.stringify(outcome)).not.toContain("session=1");
      }
    }
    expect(receiver.received.map(({ path }) => path)).toHaveLength(3);
  },
);

test("a redirect of a customer's receiver to an internal address is not followed", async () => {
  const internal = await aReceiver();
  const receiver = await aReceiver((_request, response) => {
    response.writeHead(307, { location: internal.url }).end();
    return undefined;
  });
  const { deliver } = await useTwo(receiver.url, { ...OPERATORS, CUSTOMER_ALLOWED_NETWORKS: LOOPBACK });
  expect(await deliver("customer")).toMatch(/redirects are not followed/);
  expect([receiver.received.length, internal.received.length]).toEqual([1, 0]);
});

test.each([
  ["local", "receiver.internal", "127.0.0.1"],
  ["local", "127.0.0.1", "127.0.0.1"],
  ["remote", "127.0.0.1", "127.0.0.1"],
  ["remote", "localhost", "localhost"],
])(
  "behind a proxy with DELIVERY_PROXY_DNS=%s, a customer's webhook at %s is refused before the proxy is asked",
  async (dns, host, target) => {
    const proxy = await startConnectProxy();
    onTestFinished(() => proxy.close());
    const certificate = await (await trustedAuthority()).issue([host]);
    const receiver = await aReceiver(undefined, certificate);
    const resolver = namesAt("127.0.0.1");
    const settings = {
      ...OPERATORS,
      DELIVERY_PROXY: `http://127.0.0.1:${proxy.port}`,
      DELIVERY_PROXY_DNS: dns,
    };
    const { deliver } = await useTwo(`https://${host}:${receiver.port}`, settings, { resolver });
    for (const owner of ["customer", "operator", "customer"] as const) {
      const error = await deliver(owner);
      if (owner === "customer") expect(error).toMatch(REFUSED);
      else expect(error).toBeNull();
    }
    expect(proxy.targets).toEqual([`${target}:${receiver.port}`]);
  },
);
