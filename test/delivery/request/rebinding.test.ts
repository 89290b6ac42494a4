import { expect, onTestFinished, test } from "vitest";
import { fetchToken } from "../../../src/delivery/oauth2/token-request.ts";
import { NameResolver } from "../../../src/lib/egress/name-resolver.ts";
import { setTrap } from "../../faults/trap.ts";
import { type Behaviour, type Reply, startNameServer } from "../../support/name-server.ts";
import { aReceiver, trustedAuthority } from "../../support/receivers.ts";
import { aClient, networkOf, send } from "../http-parts.ts";

const NAME = "hooks.example";
const REFUSED =
  /^address refused: hooks\.example does not resolve to a public address(?!.*(127|internal|7f00))/;
const authority = await trustedAuthority();
const certificate = await authority.issue([NAME]);

/** The public address of these tests, and a private one. */
const PUBLIC = "127.0.0.1";
const PRIVATE = "127.0.0.2";

/** A receiver at the public address, and a trap at the same port of the private one. A name server answers for both. */
async function network(behaviour: Behaviour) {
  const names = await startNameServer(behaviour);
  onTestFinished(names.close);
  const receiver = await aReceiver((_request, response) => {
    // The next request opens a connection, and looks the name up again.
    response.writeHead(200, { connection: "close" }).end();
    return undefined;
  }, certificate);
  const trap = await setTrap(PRIVATE, receiver.port);
  onTestFinished(trap.close);
  const files = { hostsFile: "/nonexistent", resolverFile: "/nonexistent" };
  const resolver = new NameResolver({ servers: [names.address], ...files });
  onTestFinished(() => resolver.close());
  const client = aClient({ networks: [networkOf(`${PUBLIC}/32`)], resolver });
  return { names, receiver, trap, client, origin: `https://${NAME}:${receiver.port}` };
}

test.each<[string, Reply]>([
  ["a private address", { addresses: [PRIVATE] }],
  ["an alias of an internal name", { alias: "vault.internal", addresses: [PRIVATE] }],
  ["several private addresses", { addresses: [PRIVATE, "10.0.0.1", "::1", "fd00::1"] }],
  ["this machine", { addresses: ["0.0.0.0", "::"] }],
  ["a mapped private address", { addresses: ["::ffff:127.0.0.2"] }],
  ["a compatible private address", { addresses: ["::7f00:2"] }],
  ["a translated private address", { addresses: ["::ffff:0:7f00:2"] }],
  ["a private address behind NAT64", { addresses: ["64:ff9b::7f00:2", "64:ff9b:1::7f00:2"] }],
  ["a private address behind 6to4", { addresses: ["2002:7f00:2::1"] }],
  ["a Teredo address", { addresses: ["2001:0:4136:e378:8000:63bf:3fff:fdd2"] }],
  ["an address of a cloud's metadata service", { addresses: ["169.254.169.254", "fd00:ec2::254"] }],
])("a name that resolves to %s is not connected to, by deliveries or token requests", async (_, reply) => {
  const { client, origin, receiver, trap } = await network(() => ({ ...reply, ttl: 0 }));
  expect(await send(client, origin)).toMatchObject({ status: null, error: expect.stringMatching(REFUSED) });
  const oauth2 = { clientId: "id", clientSecret: "secret", scope: null, audience: null, secretInBody: false };
  const token = fetchToken(client, { tokenUrl: `${origin}/token`, ...oauth2 });
  await expect(token).rejects.toThrow(/cannot be reached: address refused: hooks\.example does not resolve/);
  expect([receiver.received.length, trap.connections()]).toEqual([0, 0]);
});

test.each<[string, string[]]>([
  ["first", [PRIVATE, PUBLIC]],
  ["last", [PUBLIC, PRIVATE]],
])(
  "of several addresses only the public ones are connected to, the private one coming %s",
  async (_, addresses) => {
    const { client, origin, receiver, trap } = await network(() => ({ addresses, ttl: 0 }));
    expect(await send(client, origin)).toMatchObject({ delivered: true });
    await receiver.close();
    expect(await send(client, origin)).toMatchObject({ error: expect.stringContaining("(ECONNREFUSED)") });
    expect([receiver.received.length, trap.connections()]).toEqual([1, 0]);
  },
);

test("a name whose address changes with each lookup is looked up once a connection, which goes to the checked address", async () => {
  let lookups = 0;
  const { client, origin, receiver, trap, names } = await network(({ type }) => {
    if (type === "AAAA") return { ttl: 0 };
    lookups += 1;
    return { addresses: [lookups % 2 === 1 ? PUBLIC : PRIVATE], ttl: 0 };
  });
  const errors: (string | null)[] = [];
  for (let n = 0; n < 10; n += 1) errors.push((await send(client, origin)).error);
  for (const [n, error] of errors.entries())
    expect(error).toEqual(n % 2 === 0 ? null : expect.stringMatching(REFUSED));
  expect(names.for(NAME).filter(({ type }) => type === "A")).toHaveLength(10);
  expect([receiver.received.length, trap.connections()]).toEqual([5, 0]);
});
