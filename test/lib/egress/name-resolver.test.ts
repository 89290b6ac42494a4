import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { NameResolver, type NameResolverOptions } from "../../../src/lib/egress/name-resolver.ts";
import { anyPort } from "../../support/any-port.ts";
import { holdTime } from "../../support/held-time.ts";
import { type Behaviour, type NameServer, type Reply, startNameServer } from "../../support/name-server.ts";
import { until } from "../../support/wait.ts";

/** A resolver with a name server and system files of its own. */
async function start(behaviour: Behaviour, options: NameResolverOptions = {}) {
  const server = await startNameServer(behaviour);
  onTestFinished(server.close);
  const files = { hostsFile: "/nonexistent", resolverFile: "/nonexistent" };
  const resolver = new NameResolver({ servers: [server.address], ...files, ...options });
  onTestFinished(() => resolver.close());
  return { server, resolver };
}

const addresses = async (resolver: NameResolver, name: string) =>
  (await resolver.resolve(name)).map(({ address }) => address);

const failure = (resolver: NameResolver, name: string) =>
  resolver.resolve(name).then(
    () => "resolved",
    (error: Error) => error.message,
  );

const asked = (server: NameServer, name: string, type: "A" | "AAAA") =>
  server.for(name).filter((question) => question.type === type).length;

const V4 = { addresses: ["192.0.2.1"] };

/** A file of the test's own. */
async function file(content: string) {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-names-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const written = path.join(folder, "file");
  await writeFile(written, content);
  return {
    path: written,
    // As an editor does: there is no moment at which it is half written.
    async write(changed: string) {
      await writeFile(`${written}.new`, changed);
      await rename(`${written}.new`, written);
    },
  };
}

test("an answer of A and AAAA gives the addresses of both families, of 500 addresses, which come over TCP, eight", async () => {
  const many = Array.from({ length: 500 }, (_, n) => `198.51.${n >> 8}.${n & 255}`);
  const { server, resolver } = await start(({ name }) => ({
    addresses: name === "many.example" ? many : [...V4.addresses, "192.0.2.2", "2001:db8::1"],
    truncated: name === "many.example",
  }));
  const both = (await resolver.resolve("both.example")).map(({ address, family }) => `${family} ${address}`);
  expect(both.toSorted()).toEqual(["4 192.0.2.1", "4 192.0.2.2", "6 2001:db8::1"]);
  expect(await addresses(resolver, "many.example")).toEqual(many.slice(0, 8));
  expect(new Set(server.for("many.example").map(({ over }) => over))).toEqual(new Set(["udp", "tcp"]));
});

test("an answer is shared by all who want the name at the same time", async () => {
  const { server, resolver } = await start(() => V4);
  const all = await Promise.all(Array.from({ length: 100 }, () => addresses(resolver, "shared.example")));
  expect(new Set(all.flat())).toEqual(new Set(V4.addresses));
  expect([asked(server, "shared.example", "A"), asked(server, "shared.example", "AAAA")]).toEqual([1, 1]);
});

test("an answer is cached for its TTL, five minutes at most, and not at all when that is 0", async () => {
  const { server, resolver } = await start(({ name }) => ({
    ...V4,
    ttl: { "day.example": 86_400, "second.example": 1 }[name] ?? 0,
  }));
  const { pass } = holdTime();
  const names = ["day.example", "second.example", "none.example"];
  const counts = async () => {
    for (const name of names) await resolver.resolve(name);
    return names.map((name) => asked(server, name, "A"));
  };
  expect(await counts()).toEqual([1, 1, 1]);
  pass(999);
  expect(await counts()).toEqual([1, 1, 2]);
  pass(1);
  expect(await counts()).toEqual([1, 2, 3]);
  pass(298_999);
  expect(await counts()).toEqual([1, 3, 4]);
  pass(1);
  expect((await counts())[0]).toBe(2);
});

test("an answer that comes only after the query was sent again is taken, whichever of them it answers", async () => {
  const first = Promise.withResolvers<Reply>();
  const { server, resolver } = await start(({ type }) => {
    if (type === "AAAA") return {};
    return asked(server, "late.example", "A") === 1 ? first.promise : undefined;
  });
  const { pass } = holdTime();
  const found = addresses(resolver, "late.example");
  await expect.poll(() => asked(server, "late.example", "A")).toBe(1);
  pass(1_500);
  await expect.poll(() => asked(server, "late.example", "A")).toBe(2);
  first.resolve(V4);
  expect(await found).toEqual(V4.addresses);
});

test("an answer comes from the second name server where the first one is silent", async () => {
  const { server: silent } = await start(() => undefined);
  const { server: well } = await start(() => V4);
  const { resolver } = await start(() => undefined, { servers: [silent.address, well.address] });
  const { pass } = holdTime();
  const found = addresses(resolver, "hooks.example");
  await expect.poll(() => silent.questions.length).toBe(2);
  pass(1_500);
  await expect.poll(() => well.questions.length).toBe(2);
  // The answer for the other family is not waited for.
  pass(50);
  expect(await found).toEqual(V4.addresses);
});

test.each<[string, "A" | "AAAA", Reply | undefined, string]>([
  ["that never comes", "AAAA", undefined, "192.0.2.1"],
  ["that never comes", "A", undefined, "2001:db8::1"],
  ["of SERVFAIL", "AAAA", { code: "SERVFAIL" }, "192.0.2.1"],
  ["of NXDOMAIN", "AAAA", { code: "NXDOMAIN" }, "192.0.2.1"],
])("an answer %s for %s does not hold up the other family's", async (_what, family, reply, address) => {
  const { resolver } = await start(({ type }) => (type === family ? reply : { addresses: [address] }));
  expect(await addresses(resolver, "half.example")).toEqual([address]);
  await until(() => resolver.size.running === 0);
});

test.each<[Reply, string]>([
  [
    { code: "NXDOMAIN" },
    "does not resolve: bad.example does not exist (NXDOMAIN); check the name in the URL, and its DNS records",
  ],
  [
    {},
    "does not resolve: bad.example has no A or AAAA record (empty DNS answer); check the name in the URL, and its DNS records",
  ],
  [
    { code: "SERVFAIL" },
    "could not be looked up: the DNS server failed for bad.example (SERVFAIL); check the name servers of its domain",
  ],
  [
    { code: "REFUSED" },
    "could not be looked up: the DNS server refused the query for bad.example (REFUSED); the operator of this service must check the name servers in /etc/resolv.conf, and the network to them",
  ],
])("a name answered with %o is reported so, and asked for once in five seconds", async (bad, message) => {
  let reply = bad;
  const { server, resolver } = await start(() => reply);
  const { pass } = holdTime();
  expect(await failure(resolver, "bad.example")).toBe(`host name ${message}`);
  const questions = server.questions.length;
  reply = V4;
  pass(4_999);
  expect(await failure(resolver, "bad.example")).toBe(`host name ${message}`);
  expect(server.questions).toHaveLength(questions);
  pass(1);
  expect(await failure(resolver, "bad.example")).toBe("resolved");
});

test("a name whose lookup hangs fails after the timeout and leaves no lookup behind", async () => {
  const { resolver } = await start(() => undefined, { timeoutMs: 300 });
  expect(await failure(resolver, "slow.example")).toBe(
    "DNS lookup of slow.example timed out after 0.3 s; check the name servers of its domain",
  );
  expect(resolver.size.running).toBe(0);
});

test("a name of a name server that cannot be reached is not cached: the next lookup may succeed", async () => {
  const { resolver } = await start(() => V4, { servers: [`127.0.0.1:${await anyPort()}`] });
  expect(await failure(resolver, "a.example")).toMatch(/no DNS server can be reached|timed out/);
  expect(resolver.size).toEqual({ running: 0, cached: 0 });
});

test("localhost and names under it are this machine, without a query", async () => {
  const { server, resolver } = await start(() => V4);
  for (const name of ["localhost", "app.localhost"])
    expect(await addresses(resolver, name)).toEqual(["127.0.0.1", "::1"]);
  expect(server.questions).toEqual([]);
});

/** Starts lookups in portions, as many as the socket of a name server can hold, and waits until each was asked for. */
async function startLookups({ server, resolver }: Awaited<ReturnType<typeof start>>, names: string[]) {
  const lookups: Promise<string>[] = [];
  for (let n = 0; n < names.length; n += 50) {
    lookups.push(...names.slice(n, n + 50).map((name) => failure(resolver, name)));
    await expect.poll(() => server.questions.length, { interval: 1 }).toBe(2 * lookups.length);
  }
  return lookups;
}

test("hundreds of lookups that hang do not hold up a name that resolves, and end when the resolver is closed", async () => {
  const parts = await start(({ name }) => (name === "healthy.example" ? V4 : undefined));
  const { resolver } = parts;
  const { pass } = holdTime();
  const names = Array.from({ length: 270 }, (_, n) => `hooks.shop-${n}.test`);
  const slow = await startLookups(parts, names);
  pass(500);
  expect(await addresses(resolver, "healthy.example")).toEqual(V4.addresses);
  expect(resolver.size).toEqual({ running: 270, cached: 1 });
  resolver.close();
  for (const ended of await Promise.all(slow))
    expect(ended).toMatch(/^host name could not be looked up: .* \(ECANCELLED\)$/);
  expect(resolver.size.running).toBe(0);
});

test("the hosts file goes before DNS, and is read again when it has changed", async () => {
  const hosts = await file("# local\n192.0.2.9  Receiver receiver.example # ours\n2001:db8::9 receiver\n");
  const { server, resolver } = await start(() => V4, { hostsFile: hosts.path });
  const { pass } = holdTime();
  expect(await addresses(resolver, "receiver")).toEqual(["192.0.2.9", "2001:db8::9"]);
  expect(await addresses(resolver, "receiver.example")).toEqual(["192.0.2.9"]);
  expect(await addresses(resolver, "other.example")).toEqual(["192.0.2.1"]);
  expect(server.for("receiver")).toEqual([]);
  await hosts.write("192.0.2.10 other.example\n");
  pass(1_000);
  expect(await addresses(resolver, "other.example")).toEqual(["192.0.2.10"]);
  expect(await addresses(resolver, "receiver.example")).toEqual(["192.0.2.1"]);
});

test("search domains complete a name without a dot, and are read again when they have changed", async () => {
  const resolverFile = await file("nameserver 192.0.2.53\nsearch first.internal second.internal.\n");
  const known = new Map([
    ["receiver.second.internal", { addresses: ["192.0.2.2"], ttl: 0 }],
    ["receiver.third.internal", { addresses: ["192.0.2.3"] }],
  ]);
  const reply: Behaviour = ({ name }) => known.get(name) ?? { code: "NXDOMAIN" };
  const { server, resolver } = await start(reply, { resolverFile: resolverFile.path });
  const { pass } = holdTime();
  expect(await addresses(resolver, "receiver")).toEqual(["192.0.2.2"]);
  const asked = new Set(server.questions.map(({ name }) => name));
  expect(asked).toEqual(new Set(["receiver.first.internal", "receiver.second.internal"]));
  await resolverFile.write("search third.internal\n");
  pass(1_000);
  expect(await addresses(resolver, "receiver")).toEqual(["192.0.2.3"]);
});

test("LOCALDOMAIN and RES_OPTIONS override the file", async () => {
  vi.stubEnv("LOCALDOMAIN", "b.internal").stubEnv("RES_OPTIONS", "ndots:2");
  onTestFinished(() => void vi.unstubAllEnvs());
  const resolverFile = (await file("search a.internal\noptions ndots:0\n")).path;
  const { server, resolver } = await start(() => V4, { resolverFile });
  await addresses(resolver, "hooks.example");
  expect(new Set(server.questions.map(({ name }) => name))).toEqual(new Set(["hooks.example.b.internal"]));
});

test("a name server that answered is queried first for the next candidates of the name", async () => {
  const { server: silent } = await start(() => undefined);
  const { server: well } = await start(({ name }) => (name === "receiver" ? V4 : { code: "NXDOMAIN" }));
  const resolverFile = (await file("search a.internal b.internal\n")).path;
  const { resolver } = await start(() => undefined, {
    servers: [silent.address, well.address],
    resolverFile,
  });
  const { pass } = holdTime();
  const found = addresses(resolver, "receiver");
  await expect.poll(() => silent.questions.length).toBe(2);
  pass(1_500);
  expect(await found).toEqual(V4.addresses);
  expect(new Set(silent.questions.map(({ name }) => name))).toEqual(new Set(["receiver.a.internal"]));
});

test("a name server that fails is queried again", async () => {
  let fails = true;
  const { server, resolver } = await start(() => {
    const reply: Reply = fails ? { code: "SERVFAIL" } : V4;
    fails = server.questions.length < 2;
    return reply;
  });
  expect(await addresses(resolver, "hooks.example")).toEqual(V4.addresses);
});

test("candidates that are never answered leave time for the others", async () => {
  const resolverFile = (await file("search a.internal b.internal\noptions ndots:2\n")).path;
  const reply: Behaviour = ({ name }) => (name === "hooks.example" ? V4 : undefined);
  const { server, resolver } = await start(reply, { resolverFile });
  const { pass } = holdTime();
  const found = addresses(resolver, "hooks.example");
  await expect.poll(() => server.for("hooks.example.a.internal").length).toBe(2);
  // A third of ten seconds.
  pass(3_334);
  expect(await found).toEqual(V4.addresses);
  expect(server.for("hooks.example.b.internal")).toEqual([]);
});

test("a name that only a later candidate found, because an earlier one failed, is looked up again soon", async () => {
  const resolverFile = (await file("search a.internal\n")).path;
  const reply: Behaviour = ({ name }) => (name === "hooks.example" ? { code: "SERVFAIL" } : V4);
  const { server, resolver } = await start(reply, { resolverFile });
  const { pass } = holdTime();
  await addresses(resolver, "hooks.example");
  const questions = server.questions.length;
  pass(4_999);
  await addresses(resolver, "hooks.example");
  expect(server.questions).toHaveLength(questions);
  pass(1);
  await addresses(resolver, "hooks.example");
  expect(server.questions.length).toBeGreaterThan(questions);
});
