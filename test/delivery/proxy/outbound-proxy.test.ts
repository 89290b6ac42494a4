import { createServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import tls, { type TLSSocket } from "node:tls";
import ipaddr from "ipaddr.js";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../../demo/certificates.ts";
import { readConfig } from "../../../src/config/config.ts";
import type { Network } from "../../../src/config/values.ts";
import type { TlsSettings } from "../../../src/contract/target-rules.ts";
import { createHttpClient } from "../../../src/delivery/http/http-client.ts";
import { tlsIdentity } from "../../../src/delivery/http/tls-identity.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import { createOutboundProxy } from "../../../src/delivery/proxy/outbound-proxy.ts";
import { createAddressGuard } from "../../../src/delivery/request/address-guard.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import { post } from "../../../src/delivery/request/post.ts";
import { startConnectProxy, startSocksProxy, type TestProxy } from "./proxies.ts";

const LOOPBACK = ipaddr.parseCIDR("127.0.0.0/8") as Network;
const NONE = { webhook: "none", host: "none" };

let authority: LocalAuthority;
let privateAuthority: LocalAuthority;
let certificate: Certificate;

beforeAll(async () => {
  [authority, privateAuthority] = await Promise.all([createLocalAuthority(), createLocalAuthority()]);
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), authority.cert]);
  certificate = await authority.issue(["localhost", "127.0.0.1"]);
});

interface TestReceiver {
  origin: string;
  target: string;
  /** The client's port and the name of its certificate, of each request. */
  seen: { port: number; name: string | undefined; host: string | undefined }[];
}

async function receiver(own: Certificate = certificate, demands = false): Promise<TestReceiver> {
  const seen: TestReceiver["seen"] = [];
  const options = { requestCert: demands, rejectUnauthorized: demands, ca: privateAuthority.cert };
  const server = createServer({ ...own, ...options }, (request, response) => {
    const socket = request.socket as TLSSocket;
    const name = socket.getPeerCertificate().subject?.CN as string | undefined;
    seen.push({ port: socket.remotePort as number, name, host: request.headers.host });
    request.resume().on("end", () => response.end("noted"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { origin: `https://localhost:${port}`, target: `127.0.0.1:${port}`, seen };
}

/** A client whose connections go through the proxy in DELIVERY_PROXY. */
function client(url: string, options: { networks?: Network[]; timeoutMs?: number } = {}) {
  const { networks = [LOOPBACK], timeoutMs = 30_000 } = options;
  const logged: object[] = [];
  const note = (fields: object) => logged.push(fields);
  const address = readConfig({ DELIVERY_PROXY: url }).delivery.proxy;
  if (!address) throw new Error("no proxy");
  const log = { warn: note, info: note } as never;
  const { proxy, state, close } = createOutboundProxy(address, { timeoutMs, log });
  const connections = createHttpClient(createAddressGuard(networks), 100, proxy);
  onTestFinished(async () => {
    close();
    await connections.destroy();
  });
  const send = (origin: string, settings: TlsSettings | null = null): Promise<Outcome> => {
    const identity = tlsIdentity(settings);
    const request = { origin, path: "/", headers: [], body: "{}", ...(identity ? { tls: identity } : {}) };
    return new Promise((outcome) => post(connections, request, timeoutMs, outcome));
  };
  /** As deliveries are sent: whether the request was withdrawn instead of counted as an attempt. */
  const deliver = (origin: string): Promise<Outcome | "withdrawn"> =>
    new Promise((resolve) => {
      const gate = { maySend: () => true, withdrawn: () => resolve("withdrawn") };
      post(connections, { origin, path: "/", headers: [], body: "{}" }, timeoutMs, resolve, gate);
    });
  return { send, deliver, state, logged, open: proxy };
}

async function closing(proxy: Promise<TestProxy>): Promise<TestProxy> {
  const started = await proxy;
  onTestFinished(() => started.close());
  return started;
}

const KINDS = [
  ["http", startConnectProxy],
  ["socks5", startSocksProxy],
] as const;

test.each(KINDS)(
  "%s: requests go through the proxy, by checked address, over reused tunnels",
  async (scheme, start) => {
    const proxy = await closing(start({ credentials: "us er:p@ss:word" }));
    const { origin, target, seen } = await receiver();
    const { send } = client(`${scheme}://us%20er:p%40ss%3Aword@localhost:${proxy.port}`);
    for (let n = 0; n < 3; n += 1)
      expect(await send(origin)).toMatchObject({ status: 200, responseStart: "noted" });
    expect(proxy.targets).toEqual([target]);
    expect(new Set(seen.map(({ port }) => port)).size).toBe(1);
    expect(seen[0]?.host).toBe(new URL(origin).host);
  },
);

test("a proxy over TLS is authenticated", async () => {
  const { origin } = await receiver();
  const proxy = await closing(startConnectProxy({ certificate }));
  expect(await client(`https://localhost:${proxy.port}`).send(origin)).toMatchObject({ status: 200 });
  const misnamed = await authority.issue(["other.example"]);
  const other = await closing(startConnectProxy({ certificate: misnamed }));
  expect(await client(`https://localhost:${other.port}`).deliver(origin)).toBe("withdrawn");
  expect(other.targets).toEqual([]);
});

test.each(KINDS)("%s: the receiver's certificate is checked against its name", async (scheme, start) => {
  const proxy = await closing(start());
  const { send } = client(`${scheme}://127.0.0.1:${proxy.port}`);
  const misnamed = await receiver(await authority.issue(["other.example"]));
  const outcome = await send(misnamed.origin);
  expect(outcome.error).toContain("certificate is for another host");
  expect(verdictOf(outcome)).toMatchObject({ host: "failure" });
  const unknown = await receiver(await privateAuthority.issue(["localhost"]));
  expect((await send(unknown.origin)).error).toContain("unknown authority");
  expect(misnamed.seen).toEqual([]);
});

test.each(KINDS)(
  "%s: client certificates and private authorities hold in tunnels of their own",
  async (scheme, start) => {
    const proxy = await closing(start());
    const { send } = client(`${scheme}://127.0.0.1:${proxy.port}`);
    const { origin, seen } = await receiver(await privateAuthority.issue(["localhost"]), true);
    const [alice, bob] = await Promise.all(
      ["alice", "bob"].map(async (name) => {
        const { cert, key } = await privateAuthority.issue([name], { client: true });
        return { client: { certificate: cert, key }, authorities: privateAuthority.cert };
      }),
    );
    for (const each of [alice, bob, alice, bob] as TlsSettings[])
      expect(await send(origin, each)).toMatchObject({ status: 200 });
    expect(seen.map(({ name }) => name)).toEqual(["alice", "bob", "alice", "bob"]);
    expect(proxy.targets).toHaveLength(2);
    expect(await send(origin)).toMatchObject({ status: null, delivered: false });
  },
);

test.each(KINDS)("%s: the proxy is not asked for refused addresses and ports", async (scheme, start) => {
  const proxy = await closing(start());
  const strict = client(`${scheme}://127.0.0.1:${proxy.port}`, { networks: [] });
  for (const origin of ["https://localhost:8443", "https://10.0.0.1", "https://[::1]", "https://8.8.8.8:22"])
    expect((await strict.send(origin)).error).toContain("address refused");
  expect(proxy.targets).toEqual([]);
});

test("a status of the proxy is an attempt with its own error text, and says nothing about the receiver's window", async () => {
  const { origin, seen } = await receiver();
  const cases: [number, string, object][] = [
    [403, "outbound proxy: it refuses connections to this receiver (403)", NONE],
    [407, "outbound proxy: it refuses connections to this receiver (407)", NONE],
    [503, "outbound proxy: it opened no connection (503)", NONE],
    [502, "outbound proxy: it cannot reach the receiver (502)", { webhook: "none", host: "failure" }],
  ];
  for (const [status, error, verdict] of cases) {
    const proxy = await closing(startConnectProxy({ refuse: () => status }));
    const { deliver, state } = client(`http://127.0.0.1:${proxy.port}`);
    const outcome = (await deliver(origin)) as Outcome;
    expect(outcome).toMatchObject({ status: null, delivered: false, error });
    expect(verdictOf(outcome)).toEqual(verdict);
    expect(state.mayStart()).toBe(true);
  }
  expect(seen).toEqual([]);
});

test("a SOCKS reply is an attempt with its own error text", async () => {
  const { origin } = await receiver();
  const cases: [number, string, object][] = [
    [1, "outbound proxy: it opened no connection (SOCKS reply 1, general failure)", NONE],
    [2, "outbound proxy: it refuses connections to this receiver (SOCKS reply 2, not allowed)", NONE],
    [
      5,
      "outbound proxy: it cannot reach the receiver (SOCKS reply 5, connection refused)",
      { webhook: "none", host: "failure" },
    ],
    [99, "outbound proxy: it opened no connection (SOCKS reply 99)", NONE],
  ];
  for (const [reply, error, verdict] of cases) {
    const proxy = await closing(startSocksProxy({ refuse: () => reply }));
    const outcome = (await client(`socks5://127.0.0.1:${proxy.port}`).deliver(origin)) as Outcome;
    expect(outcome).toMatchObject({ status: null, error });
    expect(verdictOf(outcome)).toEqual(verdict);
  }
});

test("a receiver that the proxy cannot reach in time is late itself", async () => {
  // Both kinds at once, because each takes seconds.
  const late = KINDS.map(async ([scheme, start]) => {
    const proxy = await closing(start({ refuse: () => "silent" }));
    const { deliver, state } = client(`${scheme}://127.0.0.1:${proxy.port}`);
    const outcome = (await deliver("https://localhost:8443")) as Outcome;
    expect(outcome.error, scheme).toBe("outbound proxy: it did not reach the receiver in time");
    expect(verdictOf(outcome), scheme).toEqual({ webhook: "none", host: "timeout" });
    expect(state.mayStart(), scheme).toBe(true);
  });
  await Promise.all(late);
});

test.each(KINDS)(
  "%s: without the proxy a delivery is withdrawn, and the next ones wait until it is back",
  async (scheme, start) => {
    const { origin, seen } = await receiver();
    const first = await start();
    const { deliver, state, logged } = client(`${scheme}://127.0.0.1:${first.port}`);
    expect(await deliver(origin)).toMatchObject({ status: 200 });
    await first.close();
    await expect.poll(() => deliver(origin)).toBe("withdrawn");
    expect(state.mayStart()).toBe(false);
    // One request a second tries.
    await expect.poll(() => state.mayStart(), { timeout: 20_000 }).toBe(true);
    expect(await deliver(origin)).toBe("withdrawn");
    await closing(start({ port: first.port }));
    await expect.poll(() => deliver(origin), { timeout: 20_000 }).toMatchObject({ status: 200 });
    expect([state.mayStart(), state.mayStart()]).toEqual([true, true]);
    expect(seen).toHaveLength(2);
    expect(logged).toEqual([
      { reason: expect.stringMatching(/connection (refused|reset|closed)|closed the connection/) },
      { awayMs: expect.any(Number) },
    ]);
  },
);

test.each([
  ["http", startConnectProxy, "demands other credentials (407)"],
  ["socks5", startSocksProxy, "demands other credentials (SOCKS5)"],
] as const)(
  "%s: refused credentials withdraw deliveries, and are repeated nowhere",
  async (scheme, start, words) => {
    const proxy = await closing(start({ credentials: "user:right" }));
    const { deliver, send, logged, state } = client(`${scheme}://user:wr0ng@127.0.0.1:${proxy.port}`);
    expect(await deliver("https://localhost:8443")).toBe("withdrawn");
    expect(state.mayStart()).toBe(false);
    const { error, failure } = await send("https://localhost:8443");
    expect([error, failure]).toEqual([expect.stringContaining(words), "ours"]);
    expect(JSON.stringify(logged)).toContain(words);
    expect(JSON.stringify([logged, error])).not.toContain("wr0ng");
    expect(proxy.targets).toEqual([]);
  },
);

test("a proxy that closes one receiver's tunnels does not stop those of others", async () => {
  const [bad, good] = [await receiver(), await receiver()];
  const proxy = await closing(
    startConnectProxy({ refuse: (target) => (target === bad.target ? "closed" : undefined) }),
  );
  const { deliver, state } = client(`http://127.0.0.1:${proxy.port}`);
  expect(await deliver(bad.origin)).toBe("withdrawn");
  await expect.poll(() => deliver(good.origin)).toMatchObject({ status: 200 });
  expect(state.mayStart()).toBe(true);
});

test("a server of another protocol is no proxy", async () => {
  const server = createTcpServer((socket) => socket.on("error", () => {}).end("220 smtp.example ESMTP\r\n"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  for (const [scheme, words] of [
    ["http", "not HTTP"],
    ["socks5", "not SOCKS5"],
    ["https", "does not speak TLS"],
  ]) {
    const { send, deliver } = client(`${scheme}://127.0.0.1:${port}`);
    expect((await send("https://localhost:8443")).error).toContain(words);
    expect(await deliver("https://localhost:8443")).toBe("withdrawn");
  }
});

test("a proxy's name that does not resolve, and a proxy that does not answer, withdraw deliveries", async () => {
  const unknown = client("http://proxy.invalid:3128");
  expect(await unknown.deliver("https://localhost:8443")).toBe("withdrawn");
  expect(unknown.logged).toEqual([{ reason: "the DNS lookup of its name failed" }]);
  const server = createTcpServer((socket) => socket.on("error", () => {}));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const silent = client(`socks5://127.0.0.1:${port}`, { timeoutMs: 500 });
  expect(await silent.deliver("https://localhost:8443")).toBe("withdrawn");
  expect(silent.logged).toEqual([{ reason: "no connection within 0.25 s" }]);
});

test("a receiver's next address is tried if the proxy cannot reach one, IPv4 first, but not if it refuses", async () => {
  const proxy = await closing(
    startConnectProxy({ refuse: (target) => (target.startsWith("127.0.0.2:") ? 403 : 502) }),
  );
  const { open } = client(`http://127.0.0.1:${proxy.port}`);
  const port = 8_443;
  const cancelled = new AbortController().signal;
  await expect(
    open.open({ addresses: ["::1", "127.0.0.1", "127.0.0.3"], port }, 5_000, cancelled),
  ).rejects.toThrow("it cannot reach the receiver (502)");
  expect(proxy.targets).toEqual([`127.0.0.1:${port}`, `127.0.0.3:${port}`, `[::1]:${port}`]);
  proxy.targets.length = 0;
  await expect(open.open({ addresses: ["127.0.0.2", "127.0.0.3"], port }, 5_000, cancelled)).rejects.toThrow(
    "it refuses connections to this receiver (403)",
  );
  expect(proxy.targets).toEqual([`127.0.0.2:${port}`]);
});

test("a receiver that used up the time does not make the proxy unavailable", async () => {
  const silent = createTcpServer((socket) => socket.on("error", () => {}));
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void silent.close());
  const { open, state, logged } = client(`socks5://127.0.0.1:${(silent.address() as AddressInfo).port}`);
  const target = { addresses: ["127.0.0.1"], port: 443 };
  await expect(open.open(target, 100, new AbortController().signal)).rejects.toMatchObject({
    code: "PROXY_REFUSED",
    failure: "host timeout",
  });
  expect([state.mayStart(), logged]).toEqual([true, []]);
});
