import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { NameResolver, type NameResolverOptions } from "../../../src/delivery/http/name-resolver.ts";
import { type Behaviour, type NameServer, type Reply, startNameServer } from "../../support/name-server.ts";

const ends: (() => unknown)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A resolver with a name server and system files of its own. */
async function start(behaviour: Behaviour, options: NameResolverOptions = {}) {
  const { server, resolver, end } = await startLasting(behaviour, options);
  ends.push(end);
  return { server, resolver };
}

/** The same, beyond the end of a test. */
async function startLasting(behaviour: Behaviour, options: NameResolverOptions = {}) {
  const server = await startNameServer(behaviour);
  const resolver = new NameResolver({
    servers: [server.address],
    hostsFile: "/nonexistent",
    resolverFile: "/nonexistent",
    ...options,
  });
  const end = async () => {
    resolver.close();
    await server.close();
  };
  return { server, resolver, end };
}

const addresses = async (resolver: NameResolver, name: string) =>
  (await resolver.resolve(name)).map(({ address }) => address);

const failure = (resolver: NameResolver, name: string) =>
  resolver.resolve(name).then(
    () => "resolved",
    (error: Error) => error.message,
  );

const asked = (server: NameServer, name: string) => server.for(name).map(({ type }) => type);

/** A name that is looked for beside the other tests, because the resolver keeps the answer for so long. */
let missed: Awaited<ReturnType<typeof missName>>;
beforeAll(async () => {
  missed = await missName();
});
afterAll(() => missed?.end());

async function missName() {
  let exists = false;
  const { resolver, end } = await startLasting(() =>
    exists ? { addresses: ["192.0.2.1"] } : { code: "NXDOMAIN" },
  );
  const isFound = async () => (await failure(resolver, "new.example")) === "resolved";
  const first = await failure(resolver, "new.example");
  exists = true;
  const second = await failure(resolver, "new.example");
  const since = performance.now();
  const foundAfterMs = vi
    .waitUntil(isFound, { timeout: 20_000 })
    .then(() => performance.now() - since)
    .catch(() => Number.POSITIVE_INFINITY);
  return { first, second, foundAfterMs, end };
}

/** Answers A at once, and AAAA as the test says. */
const v4 =
  (address: string, ttl = 60): Behaviour =>
  () => ({ addresses: [address], ttl });

/** A file of the test's own. */
async function file(content: string): Promise<{ path: string; write(content: string): Promise<void> }> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-names-"));
  ends.push(() => rm(folder, { recursive: true }));
  const written = path.join(folder, "file");
  await writeFile(written, content);
  return {
    path: written,
    // As an editor does: there is no moment at which it is half written.
    async write(changed) {
      await writeFile(`${written}.new`, changed);
      await rename(`${written}.new`, written);
    },
  };
}

describe("an answer", () => {
  test("of A and AAAA gives the addresses of both families", async () => {
    const { resolver } = await start(() => ({ addresses: ["192.0.2.1", "192.0.2.2", "2001:db8::1"] }));
    expect((await resolver.resolve("both.example")).toSorted((a, b) => a.family - b.family)).toEqual([
      { address: "192.0.2.1", family: 4 },
      { address: "192.0.2.2", family: 4 },
      { address: "2001:db8::1", family: 6 },
    ]);
  });

  test("is shared by all who want the name at the same time", async () => {
    const { server, resolver } = await start(v4("192.0.2.1"));
    const all = await Promise.all(Array.from({ length: 100 }, () => addresses(resolver, "shared.example")));
    expect(new Set(all.flat())).toEqual(new Set(["192.0.2.1"]));
    expect(asked(server, "shared.example").toSorted()).toEqual(["A", "AAAA"]);
  });

  test("is cached for its TTL, and not at all when that is 0", async () => {
    const { server, resolver } = await start(({ name }) => ({
      addresses: ["192.0.2.1"],
      ttl: { "day.example": 86_400, "second.example": 1, "none.example": 0 }[name] ?? 60,
    }));
    for (let n = 0; n < 3; n += 1) {
      for (const name of ["day.example", "none.example"]) await resolver.resolve(name);
    }
    expect(server.for("day.example")).toHaveLength(2);
    expect(server.for("none.example")).toHaveLength(6);
    await resolver.resolve("second.example");
    expect(server.for("second.example")).toHaveLength(2);
    await expect
      .poll(async () => {
        await resolver.resolve("second.example");
        return server.for("second.example").length;
      })
      .toBe(4);
  });

  test("that is truncated is asked for again over TCP", async () => {
    const { server, resolver } = await start(() => ({ addresses: ["192.0.2.1"], truncated: true }));
    expect(await addresses(resolver, "large.example")).toEqual(["192.0.2.1"]);
    expect(new Set(server.questions.map(({ over }) => over))).toEqual(new Set(["udp", "tcp"]));
  });

  test("with 500 addresses gives eight of them", async () => {
    const many = Array.from({ length: 500 }, (_, n) => `198.51.${n >> 8}.${n & 255}`);
    const { resolver } = await start(() => ({ addresses: many, truncated: true }));
    expect(await addresses(resolver, "many.example")).toEqual(many.slice(0, 8));
  });

  test("that comes only after the query was sent again is taken, whichever of them it answers", async () => {
    const again = Promise.withResolvers<Reply>();
    const { server, resolver } = await start(({ type }) => {
      if (type === "AAAA") return {};
      if (server.questions.filter((question) => question.type === "A").length === 1) return again.promise;
      again.resolve({ addresses: ["192.0.2.1"] });
      return undefined;
    });
    expect(await addresses(resolver, "late.example")).toEqual(["192.0.2.1"]);
    expect(asked(server, "late.example").filter((type) => type === "A")).toHaveLength(2);
  });

  test("comes from the second name server where the first one is silent", async () => {
    const silent = await startNameServer(() => undefined);
    const well = await startNameServer(() => ({ addresses: ["192.0.2.1"] }));
    ends.push(silent.close, well.close);
    const { resolver } = await start(() => undefined, { servers: [silent.address, well.address] });
    expect(await addresses(resolver, "hooks.example")).toEqual(["192.0.2.1"]);
  });

  test.each([
    ["AAAA", "A", "192.0.2.1"],
    ["A", "AAAA", "2001:db8::1"],
  ])("for %s that never comes does not hold up the one for %s", async (hanging, _answered, address) => {
    const { resolver } = await start(({ type }) => (type === hanging ? undefined : { addresses: [address] }));
    expect(await addresses(resolver, "half.example")).toEqual([address]);
    await expect.poll(() => resolver.size.running).toBe(0);
  });

  test.each(["SERVFAIL", "NXDOMAIN"] as const)(
    "of %s for AAAA does not spoil the one for A",
    async (code) => {
      const { resolver } = await start(({ type }) =>
        type === "AAAA" ? { code } : { addresses: ["192.0.2.1"] },
      );
      expect(await addresses(resolver, "half.example")).toEqual(["192.0.2.1"]);
    },
  );
});

describe("a name", () => {
  test.each<[string, Reply, string]>([
    [
      "that does not exist",
      { code: "NXDOMAIN" },
      "host name does not resolve: bad.example does not exist (NXDOMAIN)",
    ],
    [
      "without addresses",
      {},
      "host name does not resolve: bad.example has no A or AAAA record (empty DNS answer)",
    ],
    [
      "whose name server fails",
      { code: "SERVFAIL" },
      "host name could not be looked up: the DNS server failed for bad.example (SERVFAIL)",
    ],
    [
      "that the name server refuses",
      { code: "REFUSED" },
      "host name could not be looked up: the DNS server refused the query for bad.example (REFUSED)",
    ],
  ])("%s is reported as such, and asked for once in five seconds", async (_case, reply, message) => {
    const { server, resolver } = await start(() => reply);
    expect(await failure(resolver, "bad.example")).toBe(message);
    const questions = server.questions.length;
    expect(await failure(resolver, "bad.example")).toBe(message);
    expect(server.questions).toHaveLength(questions);
  });

  test("whose lookup hangs fails after the timeout and leaves no lookup behind", async () => {
    const { resolver } = await start(() => undefined, { timeoutMs: 300 });
    expect(await failure(resolver, "slow.example")).toBe("DNS lookup of slow.example timed out after 0.3 s");
    expect(resolver.size.running).toBe(0);
  });

  test("of a name server that cannot be reached is not cached: the next lookup may succeed", async () => {
    const { server, resolver } = await start(v4("192.0.2.1"));
    await server.close();
    ends.shift();
    expect(await failure(resolver, "a.example")).toMatch(/no DNS server can be reached|timed out/);
    expect(resolver.size).toEqual({ running: 0, cached: 0 });
  });

  test.each(["localhost", "app.localhost"])("%s is this machine, without a query", async (name) => {
    const { server, resolver } = await start(v4("192.0.2.1"));
    expect(await addresses(resolver, name)).toEqual(["127.0.0.1", "::1"]);
    expect(server.questions).toEqual([]);
  });

  test("under .invalid does not exist, without a query", async () => {
    const { server, resolver } = await start(v4("192.0.2.1"));
    expect(await failure(resolver, "hooks.invalid")).toMatch(/does not exist/);
    expect(server.questions).toEqual([]);
  });
});

/** Starts lookups in portions, as many as the socket of a name server can hold, and waits until each was asked for. */
async function startLookups(
  { server, resolver }: { server: NameServer; resolver: NameResolver },
  names: readonly string[],
): Promise<Promise<string>[]> {
  const lookups: Promise<string>[] = [];
  for (let n = 0; n < names.length; n += 50) {
    lookups.push(...names.slice(n, n + 50).map((name) => failure(resolver, name)));
    await vi.waitUntil(() => server.questions.length >= 2 * lookups.length, { timeout: 10_000, interval: 1 });
  }
  return lookups;
}

/** Names under domains of their own. */
const manyNames = (count: number) => Array.from({ length: count }, (_, n) => `hooks.shop-${n}.test`);

test("400 names that are looked up at the same time all resolve", async () => {
  const answers = Promise.withResolvers<Reply>();
  const parts = await start(() => answers.promise);
  const lookups = await startLookups(parts, manyNames(400));
  answers.resolve({ addresses: ["192.0.2.1"] });
  expect(new Set(await Promise.all(lookups))).toEqual(new Set(["resolved"]));
});

describe("lookups that hang", () => {
  test("by the hundred do not hold up a name that resolves; the oldest beyond 256 end after a second", async () => {
    const parts = await start(({ name }) =>
      name === "healthy.example" ? { addresses: ["192.0.2.1"] } : undefined,
    );
    const { resolver } = parts;
    const names = manyNames(300);
    const slow = await startLookups(parts, names);
    expect(await addresses(resolver, "healthy.example")).toEqual(["192.0.2.1"]);
    for (const [n, ended] of (await Promise.all(slow.slice(0, 44))).entries())
      expect(ended).toMatch(
        new RegExp(`^DNS lookup of ${names[n]} ended after \\d\\.\\d s: more than 256 names take over 1 s$`),
      );
    await expect.poll(() => resolver.size.running).toBe(256);
    resolver.close();
    for (const ended of await Promise.all(slow.slice(44))) expect(ended).toMatch(/ECANCELLED/);
    await expect.poll(() => resolver.size.running).toBe(0);
  });

  test("under one domain keep 16 places beyond a second, and take none from other domains", async () => {
    const late = Promise.withResolvers<Reply>();
    const { resolver } = await start(({ name }) =>
      name === "late.other.example" ? late.promise : undefined,
    );
    const other = addresses(resolver, "late.other.example");
    const slow = Array.from({ length: 100 }, (_, n) => failure(resolver, `${n}.deep.slow.test`));
    expect(await slow[0]).toMatch(/ended after 1\.\d s: more than 16 names under slow\.test take over 1 s$/);
    await expect.poll(() => resolver.size.running).toBe(17);
    late.resolve({ addresses: ["192.0.2.1"] });
    expect(await other).toEqual(["192.0.2.1"]);
  });

  test("end when the resolver closes", async () => {
    const { server, resolver } = await start(() => undefined);
    const waiting = failure(resolver, "slow.example");
    await expect.poll(() => server.for("slow.example")).toHaveLength(2);
    resolver.close();
    expect(await waiting).toBe("host name could not be looked up: slow.example (ECANCELLED)");
    await expect.poll(() => resolver.size).toEqual({ running: 0, cached: 0 });
  });
});

describe("the system's files", () => {
  test("the hosts file goes before DNS, and is read again when it has changed", async () => {
    const hosts = await file("# local\n192.0.2.9  Receiver receiver.example # ours\n2001:db8::9 receiver\n");
    const { server, resolver } = await start(v4("192.0.2.1"), { hostsFile: hosts.path });
    expect(await addresses(resolver, "receiver")).toEqual(["192.0.2.9", "2001:db8::9"]);
    expect(await addresses(resolver, "receiver.example")).toEqual(["192.0.2.9"]);
    expect(await addresses(resolver, "other.example")).toEqual(["192.0.2.1"]);
    await hosts.write("192.0.2.10 other.example\n");
    await expect.poll(() => addresses(resolver, "other.example")).toEqual(["192.0.2.10"]);
    expect(await addresses(resolver, "receiver.example")).toEqual(["192.0.2.1"]);
    expect(server.for("receiver")).toEqual([]);
  });

  test("search domains complete a name without a dot, and are read again when they have changed", async () => {
    const resolverFile = await file("nameserver 192.0.2.53\nsearch first.internal second.internal.\n");
    const { server, resolver } = await start(
      ({ name }) =>
        ["receiver.second.internal", "receiver.third.internal"].includes(name)
          ? { addresses: [name.includes("second") ? "192.0.2.2" : "192.0.2.3"], ttl: 0 }
          : { code: "NXDOMAIN" },
      { resolverFile: resolverFile.path },
    );
    expect(await addresses(resolver, "receiver")).toEqual(["192.0.2.2"]);
    expect(new Set(server.questions.map(({ name }) => name))).toEqual(
      new Set(["receiver.first.internal", "receiver.second.internal"]),
    );
    await resolverFile.write("search third.internal\n");
    await expect.poll(() => addresses(resolver, "receiver")).toEqual(["192.0.2.3"]);
  });

  test("a name with a dot is asked for as it stands before the search domains, whatever ndots says", async () => {
    const resolverFile = await file("search internal\noptions timeout:1 ndots:5\n");
    const { server, resolver } = await start(
      ({ name }) =>
        name === "shop.example" || name.endsWith(".internal")
          ? { addresses: [name === "shop.example" ? "192.0.2.1" : "192.0.2.2"] }
          : { code: "NXDOMAIN" },
      { resolverFile: resolverFile.path },
    );
    expect(await addresses(resolver, "shop.example")).toEqual(["192.0.2.1"]);
    expect(server.for("shop.example.internal")).toEqual([]);
    expect(await addresses(resolver, "receiver.namespace")).toEqual(["192.0.2.2"]);
  });
});

test("a name that did not exist can be found five seconds later, whatever TTL it has then", async () => {
  const { first, second, foundAfterMs } = missed;
  for (const error of [first, second]) expect(error).toMatch(/does not exist/);
  expect(await foundAfterMs).toBeGreaterThan(4_000);
  expect(await foundAfterMs).toBeLessThan(20_000);
});
