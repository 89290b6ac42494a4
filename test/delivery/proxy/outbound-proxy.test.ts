import { createServer as createTcpServer } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { readConfig } from "../../../src/config/config.ts";
import type { Network } from "../../../src/config/values.ts";
import type { TlsSettings } from "../../../src/contract/target-rules.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import { createOutboundProxy } from "../../../src/delivery/proxy/outbound-proxy.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import { localCertificate, trustedAuthority } from "../../support/receivers.ts";
import {
  aClient,
  type Differences,
  deliver,
  holdTime,
  LOOPBACK,
  listening,
  noting,
  send as sendUngated,
} from "../http-parts.ts";
import { startConnectProxy, startSocksProxy, type TestProxy } from "./proxies.ts";

const NONE = { webhook: "none", host: "none" };
/** A receiver that no test reaches. */
const ELSEWHERE = "https://localhost:8443";

const certificate = await localCertificate();
const authority = await trustedAuthority();
const privateAuthority = await createLocalAuthority();

const receiver = (own = certificate, demands = false) =>
  noting(own, { authority: privateAuthority.cert, demands });

/** A client whose connections go through the proxy in DELIVERY_PROXY. */
function client(url: string, { networks = [LOOPBACK] as Network[], timeoutMs = 30_000 } = {}) {
  const logged: object[] = [];
  const note = (fields: object) => logged.push(fields);
  const address = readConfig({ DELIVERY_PROXY: url }).delivery.proxy;
  if (!address) throw new Error("no proxy");
  const log = { warn: note, info: note } as never;
  const { proxy, state, close } = createOutboundProxy(address, { timeoutMs, log });
  onTestFinished(close);
  const connections = aClient({ networks, proxy });
  const send = (origin: string, more: Differences = {}) =>
    deliver(connections, origin, more) as Promise<Outcome>;
  return { send, connections, state, logged, proxy };
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
  expect(await client(`https://localhost:${other.port}`).send(origin)).toBe("withdrawn");
  expect(other.targets).toEqual([]);
});

test.each(KINDS)(
  "%s: certificates are checked, and client certificates and private authorities hold, in tunnels of their own",
  async (scheme, start) => {
    const proxy = await closing(start());
    const { send } = client(`${scheme}://127.0.0.1:${proxy.port}`);
    const misnamed = await receiver(await authority.issue(["other.example"]));
    const outcome = await send(misnamed.origin);
    expect(outcome.error).toContain("certificate is for another host");
    expect(verdictOf(outcome)).toMatchObject({ host: "failure" });
    expect(misnamed.seen).toEqual([]);
    const { origin, seen } = await receiver(await privateAuthority.issue(["localhost"]), true);
    expect((await send(origin)).error).toContain("unknown authority");
    proxy.targets.length = 0;
    const [alice, bob] = await Promise.all(
      ["alice", "bob"].map(async (name) => {
        const { cert, key } = await privateAuthority.issue([name], { client: true });
        return { client: { certificate: cert, key }, authorities: privateAuthority.cert };
      }),
    );
    for (const tls of [alice, bob, alice, bob] as TlsSettings[])
      expect(await send(origin, { tls })).toMatchObject({ status: 200 });
    expect(seen.map(({ client: name }) => name)).toEqual(["alice", "bob", "alice", "bob"]);
    expect(proxy.targets).toHaveLength(2);
  },
);

test.each(KINDS)("%s: the proxy is not asked for refused addresses and ports", async (scheme, start) => {
  const proxy = await closing(start());
  const strict = client(`${scheme}://127.0.0.1:${proxy.port}`, { networks: [] });
  for (const origin of [ELSEWHERE, "https://10.0.0.1", "https://[::1]", "https://8.8.8.8:22"])
    expect((await strict.send(origin)).error).toContain("address refused");
  expect(proxy.targets).toEqual([]);
});

const UNREACHED = { webhook: "none", host: "failure" };
test.each<[string, string, typeof startConnectProxy, number, object]>([
  ["http", "it refuses connections to this receiver (403)", startConnectProxy, 403, NONE],
  ["http", "it refuses connections to this receiver (407)", startConnectProxy, 407, NONE],
  ["http", "it opened no connection (503)", startConnectProxy, 503, NONE],
  ["http", "it cannot reach the receiver (502)", startConnectProxy, 502, UNREACHED],
  ["socks5", "it opened no connection (SOCKS reply 1, general failure)", startSocksProxy, 1, NONE],
  [
    "socks5",
    "it refuses connections to this receiver (SOCKS reply 2, not allowed)",
    startSocksProxy,
    2,
    NONE,
  ],
  [
    "socks5",
    "it cannot reach the receiver (SOCKS reply 5, connection refused)",
    startSocksProxy,
    5,
    UNREACHED,
  ],
  ["socks5", "it opened no connection (SOCKS reply 99)", startSocksProxy, 99, NONE],
])(
  "%s: an answer other than yes is an attempt with the error: %s",
  async (scheme, error, start, reply, verdict) => {
    const proxy = await closing(start({ refuse: () => reply }));
    const { send, state } = client(`${scheme}://127.0.0.1:${proxy.port}`);
    const outcome = await send(ELSEWHERE);
    expect(outcome).toMatchObject({ status: null, delivered: false, error: `outbound proxy: ${error}` });
    expect(verdictOf(outcome)).toEqual(verdict);
    expect(state.mayStart()).toBe(true);
  },
);

test.each(KINDS)(
  "%s: a receiver that the proxy cannot reach in time is late itself",
  async (scheme, start) => {
    const { pass } = holdTime();
    const proxy = await closing(
      start({
        refuse() {
          pass(5_000);
          return "silent";
        },
      }),
    );
    const { send, state } = client(`${scheme}://127.0.0.1:${proxy.port}`);
    const outcome = await send(ELSEWHERE);
    expect(outcome.error).toBe("outbound proxy: it did not reach the receiver in time");
    expect(verdictOf(outcome)).toEqual({ webhook: "none", host: "timeout" });
    expect(state.mayStart()).toBe(true);
  },
);

test.each(KINDS)(
  "%s: without the proxy a delivery is withdrawn, and the next ones wait until it is back",
  async (scheme, start) => {
    const { origin, seen } = await receiver();
    const first = await start();
    const { send, state, logged } = client(`${scheme}://127.0.0.1:${first.port}`);
    const { pass } = holdTime();
    expect(await send(origin)).toMatchObject({ status: 200 });
    await first.close();
    await expect.poll(() => send(origin)).toBe("withdrawn");
    expect(state.mayStart()).toBe(false);
    // One request a second tries.
    pass(1_000);
    expect([state.mayStart(), state.mayStart()]).toEqual([true, false]);
    expect(await send(origin)).toBe("withdrawn");
    await closing(start({ port: first.port }));
    pass(1_000);
    await expect.poll(() => send(origin)).toMatchObject({ status: 200 });
    expect([state.mayStart(), state.mayStart()]).toEqual([true, true]);
    expect(seen).toHaveLength(2);
    expect(logged).toEqual([
      { reason: expect.stringMatching(/connection (refused|reset|closed)|closed the connection/) },
      { awayMs: 2_000 },
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
    const { send, connections, logged, state } = client(`${scheme}://user:wr0ng@127.0.0.1:${proxy.port}`);
    expect(await send(ELSEWHERE)).toBe("withdrawn");
    expect(state.mayStart()).toBe(false);
    const { error, failure } = await sendUngated(connections, ELSEWHERE);
    expect([error, failure]).toEqual([expect.stringContaining(words), "ours"]);
    expect(logged).toEqual([{ reason: expect.stringContaining(words) }]);
    expect(JSON.stringify([logged, error])).not.toContain("wr0ng");
    expect(proxy.targets).toEqual([]);
  },
);

test("a proxy that closes one receiver's tunnels does not stop those of others", async () => {
  const [bad, good] = [await receiver(), await receiver()];
  const proxy = await closing(
    startConnectProxy({ refuse: (target) => (target === bad.target ? "closed" : undefined) }),
  );
  const { send, state } = client(`http://127.0.0.1:${proxy.port}`);
  expect(await send(bad.origin)).toBe("withdrawn");
  await expect.poll(() => send(good.origin)).toMatchObject({ status: 200 });
  expect(state.mayStart()).toBe(true);
});

test.each([
  ["http", "not HTTP"],
  ["socks5", "not SOCKS5"],
  ["https", "does not speak TLS"],
])("%s: a server of another protocol is no proxy", async (scheme, words) => {
  const { port } = await listening(createTcpServer((socket) => socket.end("220 smtp.example ESMTP\r\n")));
  const { send, logged } = client(`${scheme}://127.0.0.1:${port}`);
  expect(await send(ELSEWHERE)).toBe("withdrawn");
  expect(logged).toEqual([{ reason: expect.stringContaining(words) }]);
});

test("a proxy's name that does not resolve, and a proxy that does not answer, withdraw deliveries", async () => {
  const unknown = client("http://proxy.invalid:3128");
  expect(await unknown.send(ELSEWHERE)).toBe("withdrawn");
  expect(unknown.logged).toEqual([{ reason: "the DNS lookup of its name failed" }]);
  const { port } = await listening(createTcpServer());
  const silent = client(`socks5://127.0.0.1:${port}`, { timeoutMs: 500 });
  expect(await silent.send(ELSEWHERE)).toBe("withdrawn");
  expect(silent.logged).toEqual([{ reason: "no connection within 0.25 s" }]);
});

const NEVER = new AbortController().signal;

test("a receiver's next address is tried if the proxy cannot reach one, IPv4 first, but not if it refuses", async () => {
  const { port, targets } = await closing(
    startConnectProxy({ refuse: (target) => (target.startsWith("127.0.0.2:") ? 403 : 502) }),
  );
  const { proxy } = client(`http://127.0.0.1:${port}`);
  const open = (...addresses: string[]) => proxy.open({ addresses, port: 1 }, 5_000, NEVER);
  await expect(open("::1", "127.0.0.1", "127.0.0.3")).rejects.toThrow("it cannot reach the receiver (502)");
  await expect(open("127.0.0.2", "127.0.0.3")).rejects.toThrow(/refuses .* \(403\)/);
  expect(targets).toEqual(["127.0.0.1:1", "127.0.0.3:1", "[::1]:1", "127.0.0.2:1"]);
});

test("a receiver that used up the time does not make the proxy unavailable", async () => {
  const { port } = await listening(createTcpServer());
  const { proxy, state, logged } = client(`socks5://127.0.0.1:${port}`);
  const target = { addresses: ["127.0.0.1"], port: 443 };
  await expect(proxy.open(target, 100, NEVER)).rejects.toMatchObject({
    code: "PROXY_REFUSED",
    failure: "host timeout",
  });
  expect([state.mayStart(), logged]).toEqual([true, []]);
});
