import { createServer as createTcpServer } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { readConfig } from "../../../src/config/config.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import type { Network } from "../../../src/lib/egress/index.ts";
import { NameResolver } from "../../../src/lib/egress/name-resolver.ts";
import { OutboundProxy } from "../../../src/lib/egress/outbound-proxy.ts";
import { freshRun, queueFor, states, useEngine } from "../../delivery/engine-parts.ts";
import {
  aClient,
  type Differences,
  deliver,
  LOOPBACK,
  listening,
  noting,
  send as sendUngated,
} from "../../delivery/http-parts.ts";
import { holdTime } from "../../support/held-time.ts";
import { aReceiver, heldReplies, localCertificate, trustedAuthority } from "../../support/receivers.ts";
import { until } from "../../support/wait.ts";
import { startConnectProxy, startSocksProxy, type TestProxy, type TestProxyOptions } from "./proxies.ts";

const NONE = { webhook: "none", host: "none" };
/** A receiver that no test reaches. */
const ELSEWHERE = "https://localhost:8443";

const certificate = await localCertificate();
const authority = await trustedAuthority();
const privateAuthority = await createLocalAuthority();

const receiver = (own = certificate, demands = false) =>
  noting(own, { authority: privateAuthority.cert, demands });

/** A client whose connections go through the proxy in DELIVERY_PROXY. */
function client(
  url: string,
  { networks = [LOOPBACK] as Network[], timeoutMs = 30_000, resolvesNames = false } = {},
) {
  const logged: object[] = [];
  const note = (fields: object) => logged.push(fields);
  const address = readConfig({ DELIVERY_PROXY: url }).delivery.proxy;
  if (!address) throw new Error("no proxy");
  const log = { warn: note, info: note } as never;
  const proxy = new OutboundProxy(address, new NameResolver(), { timeoutMs, resolvesNames, log });
  const connections = aClient({ networks, proxy });
  const send = (origin: string, more: Differences = {}) =>
    deliver(connections, origin, more) as Promise<Outcome>;
  return { send, connections, logged, tunnels: proxy };
}

const START = { http: startConnectProxy, socks5: startSocksProxy };
const KINDS = ["http", "socks5"] as const;

/** A proxy until the end of the test, and a client of it. */
async function proxied(kind: keyof typeof START, options: TestProxyOptions = {}, networks = [LOOPBACK]) {
  const proxy = await closing(START[kind](options));
  return { proxy, ...client(`${kind}://127.0.0.1:${proxy.port}`, { networks }) };
}

async function closing(proxy: Promise<TestProxy>): Promise<TestProxy> {
  const started = await proxy;
  onTestFinished(() => started.close());
  return started;
}

test.each(KINDS)("%s: requests go through reused tunnels, by checked address", async (kind) => {
  const proxy = await closing(START[kind]({ credentials: "us er:p@ss:word" }));
  const { origin, target, seen } = await receiver();
  const { send } = client(`${kind}://us%20er:p%40ss%3Aword@localhost:${proxy.port}`);
  for (let n = 0; n < 3; n += 1)
    expect(await send(origin)).toMatchObject({ status: 200, responseStart: "noted" });
  expect(proxy.targets).toEqual([target]);
  expect(new Set(seen.map(({ port }) => port)).size).toBe(1);
  expect(seen[0]?.host).toBe(new URL(origin).host);
});

test.each([
  ["a name", [3, 5, ...Buffer.from("proxy")]],
  ["an IPv6 address", [4, ...Buffer.alloc(16)]],
])("a SOCKS proxy may answer with its own address as %s", async (_what, bound) => {
  const { origin } = await receiver();
  const { send } = await proxied("socks5", { bound });
  expect(await send(origin)).toMatchObject({ status: 200, responseStart: "noted" });
});

test("a proxy over TLS is authenticated", async () => {
  const { origin } = await receiver();
  const proxy = await closing(startConnectProxy({ certificate }));
  expect(await client(`https://localhost:${proxy.port}`).send(origin)).toMatchObject({ status: 200 });
  const misnamed = await authority.issue(["other.example"]);
  const other = await closing(startConnectProxy({ certificate: misnamed }));
  expect(await client(`https://localhost:${other.port}`).send(origin)).toBe("withdrawn");
  expect(other.targets).toEqual([]);
});

test.each(KINDS)("%s: certificates of receivers and clients are checked in tunnels", async (kind) => {
  const { proxy, send } = await proxied(kind);
  const misnamed = await receiver(await authority.issue(["other.example"]));
  const outcome = await send(misnamed.origin);
  expect(outcome.error).toContain("certificate is for another host");
  expect(verdictOf(outcome)).toMatchObject({ host: "failure" });
  expect(misnamed.seen).toEqual([]);
  const { origin, seen } = await receiver(await privateAuthority.issue(["localhost"]), true);
  expect((await send(origin)).error).toContain("unknown authority");
  proxy.targets.length = 0;
  const names = ["alice", "bob"];
  const certificates = await Promise.all(
    names.map((name) => privateAuthority.issue([name], { client: true })),
  );
  for (const { cert, key } of [...certificates, ...certificates]) {
    const tls = { client: { certificate: cert, key }, authorities: privateAuthority.cert };
    expect(await send(origin, { tls })).toMatchObject({ status: 200 });
  }
  expect(seen.map(({ client: name }) => name)).toEqual([...names, ...names]);
  expect(proxy.targets).toHaveLength(2);
});

test.each(KINDS)("%s: the proxy is not asked for refused addresses and ports", async (kind) => {
  const { proxy, send } = await proxied(kind, {}, []);
  for (const origin of [ELSEWHERE, "https://10.0.0.1", "https://[::1]", "https://8.8.8.8:22"])
    expect((await send(origin)).error).toContain("address refused");
  expect(proxy.targets).toEqual([]);
});

test.each(KINDS)("%s: a proxy that looks names up gets names, and only allowed addresses", async (kind) => {
  const proxy = await closing(START[kind]());
  const { origin, seen } = await receiver(await authority.issue(["receiver.internal"]));
  const port = new URL(origin).port;
  const { send } = client(`${kind}://127.0.0.1:${proxy.port}`, { networks: [], resolvesNames: true });
  expect(await send(`https://receiver.internal:${port}`)).toMatchObject({ status: 200 });
  expect(seen[0]?.host).toBe(`receiver.internal:${port}`);
  for (const refused of ["10.0.0.1", "[::1]", "localhost", "app.localhost", "receiver.internal:22"])
    expect((await send(`https://${refused}`)).error).toContain("address refused");
  expect(proxy.targets).toEqual([`receiver.internal:${port}`]);
});

test("a name that is too long for SOCKS5 fails its own attempt", async () => {
  const proxy = await closing(startSocksProxy());
  const { send, tunnels } = client(`socks5://127.0.0.1:${proxy.port}`, { resolvesNames: true });
  const { error } = await send(`https://${`${"a".repeat(60)}.`.repeat(5)}internal`);
  expect(error).toBe("outbound proxy: the host name has 313 bytes; SOCKS5 allows 255; use a shorter name");
  expect(tunnels.mayStart()).toBe(true);
});

const REMEDY = {
  receiver: "check that the receiver runs, and that the proxy can reach it",
  rules: "the operator of this service must check the proxy's rules and log",
};
const UNREACHED = { webhook: "none", host: "failure" };
test.each<["http" | "socks5", string, number, object]>([
  ["http", "it refuses connections to this receiver (403)", 403, NONE],
  ["http", "it refuses connections to this receiver (407)", 407, NONE],
  ["http", "it opened no connection (503)", 503, NONE],
  ["http", "it cannot reach the receiver (502)", 502, UNREACHED],
  ["socks5", "it opened no connection (SOCKS reply 1, general failure)", 1, NONE],
  ["socks5", "it refuses connections to this receiver (SOCKS reply 2, not allowed)", 2, NONE],
  ["socks5", "it cannot reach the receiver (SOCKS reply 5, connection refused)", 5, UNREACHED],
  ["socks5", "it opened no connection (SOCKS reply 99)", 99, NONE],
])("%s: an answer other than yes is an attempt with the error: %s", async (kind, error, reply, verdict) => {
  const { proxy, send, tunnels } = await proxied(kind, { refuse: () => reply });
  const outcome = await send(ELSEWHERE);
  expect(outcome).toMatchObject({
    status: null,
    delivered: false,
    error: `outbound proxy: ${error}; ${REMEDY[verdict === UNREACHED ? "receiver" : "rules"]}`,
  });
  expect(verdictOf(outcome)).toEqual(verdict);
  expect(tunnels.mayStart()).toBe(true);
  // This process closes the connection, without waiting for the proxy.
  await until(() => proxy.open.size === 0);
});

test.each(KINDS)("%s: a receiver that the proxy cannot reach in time is late itself", async (kind) => {
  const { pass } = holdTime();
  const refuse = () => {
    pass(5_000);
    return "silent" as const;
  };
  const { send, tunnels } = await proxied(kind, { refuse });
  const outcome = await send(ELSEWHERE);
  expect(outcome.error).toBe(`outbound proxy: it did not reach the receiver in time; ${REMEDY.receiver}`);
  expect(verdictOf(outcome)).toEqual({ webhook: "none", host: "timeout" });
  expect(tunnels.mayStart()).toBe(true);
});

test.each(KINDS)("%s: without the proxy, deliveries wait until it is back", async (kind) => {
  const { origin, seen } = await receiver();
  const { proxy: first, send, tunnels, logged } = await proxied(kind);
  const { pass } = holdTime();
  expect(await send(origin)).toMatchObject({ status: 200 });
  await first.close();
  await expect.poll(() => send(origin)).toBe("withdrawn");
  expect(tunnels.mayStart()).toBe(false);
  // One request a second tries.
  pass(1_000);
  expect([tunnels.mayStart(), tunnels.mayStart()]).toEqual([true, false]);
  expect(await send(origin)).toBe("withdrawn");
  await closing(START[kind]({ port: first.port }));
  pass(1_000);
  await expect.poll(() => send(origin)).toMatchObject({ status: 200 });
  expect([tunnels.mayStart(), tunnels.mayStart()]).toEqual([true, true]);
  expect(seen).toHaveLength(2);
  expect(logged).toEqual([
    { reason: expect.stringMatching(/connection (refused|reset|closed)|closed the connection/) },
    { awayMs: 2_000 },
  ]);
});

test.each([
  ["http", "demands other credentials (407)"],
  ["socks5", "demands other credentials (SOCKS5)"],
] as const)("%s: refused credentials withdraw deliveries, and are repeated nowhere", async (kind, words) => {
  const proxy = await closing(START[kind]({ credentials: "user:right" }));
  const { send, connections, logged, tunnels } = client(`${kind}://user:wr0ng@127.0.0.1:${proxy.port}`);
  expect(await send(ELSEWHERE)).toBe("withdrawn");
  expect(tunnels.mayStart()).toBe(false);
  const { error, failure } = await sendUngated(connections, ELSEWHERE);
  expect([error, failure]).toEqual([expect.stringContaining(words), "ours"]);
  expect(logged).toEqual([{ reason: expect.stringContaining(words) }]);
  expect(JSON.stringify([logged, error])).not.toContain("wr0ng");
  expect(proxy.targets).toEqual([]);
});

test("a proxy that closes the tunnels of one receiver does not affect other receivers", async () => {
  const [bad, good] = [await receiver(), await receiver()];
  const refuse = (target: string) => (target === bad.target ? "closed" : undefined);
  const { send, tunnels } = await proxied("http", { refuse });
  expect(await send(bad.origin)).toBe("withdrawn");
  await expect.poll(() => send(good.origin)).toMatchObject({ status: 200 });
  expect(tunnels.mayStart()).toBe(true);
});

test("a tunnel that the proxy closes after another receiver has answered over an older one is a failed attempt", async () => {
  const held = heldReplies();
  const [well, bad] = [await aReceiver(held.reply), await aReceiver()];
  const refuse = (target: string) => (target.endsWith(`:${bad.port}`) ? ("silent" as const) : undefined);
  const proxy = await closing(startConnectProxy({ refuse }));
  const parts = await useEngine({ DELIVERY_PROXY: `http://127.0.0.1:${proxy.port}` });
  const runId = await freshRun(parts.db);
  await queueFor(parts, well.url, { webhooks: 1, events: 1 });
  const stop = new AbortController();
  const pumping = parts.engine.pumps.run(runId, { lingers: true, forMs: 600_000 }, stop.signal);
  await until(() => held.waiting === 1);
  await queueFor(parts, bad.url, { webhooks: 1, events: 1 });
  await until(() => proxy.targets.length === 2);
  held.answer();
  await until(async () => (await states(parts))["delivered 1"] === 1);
  for (const socket of proxy.open) socket.destroy();
  await until(async () => (await states(parts))["retrying 1"] === 1);
  stop.abort();
  await pumping;
  expect([await states(parts), proxy.targets.length]).toEqual([{ "delivered 1": 1, "retrying 1": 1 }, 2]);
});

const smtp = async () => {
  const server = createTcpServer((socket) => socket.end("220 smtp.example ESMTP\r\n"));
  return `127.0.0.1:${(await listening(server)).port}`;
};
test.each<[string, string, () => Promise<string>, string]>([
  ["speaks another protocol", "http", smtp, "not HTTP"],
  ["speaks another protocol", "socks5", smtp, "not SOCKS5"],
  ["speaks another protocol", "https", smtp, "does not speak TLS"],
  ["has no address", "http", async () => "proxy.invalid:3128", "the DNS lookup of its name failed"],
  [
    "does not answer",
    "socks5",
    async () => `127.0.0.1:${(await listening(createTcpServer())).port}`,
    "no connection within 0.25 s",
  ],
])("deliveries are withdrawn if the proxy %s: %s", async (_what, scheme, address, words) => {
  const { send, logged } = client(`${scheme}://${await address()}`, { timeoutMs: 500 });
  expect(await send(ELSEWHERE)).toBe("withdrawn");
  expect(logged).toEqual([{ reason: expect.stringContaining(words) }]);
});

const NEVER = new AbortController().signal;

test("a receiver's next address is tried if the proxy cannot reach one, IPv4 first, but not if it refuses", async () => {
  const refuse = (target: string) => (target.startsWith("127.0.0.2:") ? 403 : 502);
  const {
    proxy: { targets },
    tunnels,
  } = await proxied("http", { refuse });
  const open = (...addresses: string[]) => tunnels.open({ hosts: addresses, port: 1 }, 5_000, NEVER);
  await expect(open("::1", "127.0.0.1", "127.0.0.3")).rejects.toThrow("it cannot reach the receiver (502)");
  await expect(open("127.0.0.2", "127.0.0.3")).rejects.toThrow(/refuses .* \(403\)/);
  expect(targets).toEqual(["127.0.0.1:1", "127.0.0.3:1", "[::1]:1", "127.0.0.2:1"]);
});

test("a receiver that used up the time does not make the proxy unavailable", async () => {
  const { port } = await listening(createTcpServer());
  const { tunnels, logged } = client(`socks5://127.0.0.1:${port}`);
  const late = { code: "PROXY_REFUSED", failure: "host timeout" };
  const target = { hosts: ["127.0.0.1"], port: 443 };
  await expect(tunnels.open(target, 100, NEVER)).rejects.toMatchObject(late);
  expect([tunnels.mayStart(), logged]).toEqual([true, []]);
});
