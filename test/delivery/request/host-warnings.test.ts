import { expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import { createHostWarnings } from "../../../src/delivery/request/host-warnings.ts";
import { NameResolver } from "../../../src/lib/egress/name-resolver.ts";
import { type Behaviour, startNameServer } from "../../support/name-server.ts";

const REPLIES: Record<string, ReturnType<Behaviour>> = {
  "public.example": { addresses: ["93.184.216.34"] },
  "private.example": { addresses: ["10.20.30.40"] },
  "receiver.internal": { addresses: ["10.20.30.40"] },
  "failing.example": { code: "SERVFAIL" },
  "silent.example": undefined,
};

/** The warnings of a service with these settings, whose lookups take at most 0.2 s. */
async function warnings(
  url: string,
  environment: NodeJS.ProcessEnv = {},
  customer: string | null = null,
): Promise<string[]> {
  const server = await startNameServer(({ name }) =>
    name in REPLIES ? REPLIES[name] : { code: "NXDOMAIN" },
  );
  onTestFinished(server.close);
  const files = { hostsFile: "/nonexistent", resolverFile: "/nonexistent" };
  const resolver = new NameResolver({ servers: [server.address], timeoutMs: 200, ...files });
  const { of, close } = createHostWarnings(readConfig(environment).delivery, resolver);
  onTestFinished(close);
  return of(url, customer);
}

const SAVED = "the URL was saved, but deliveries to it fail at present: ";

test.each([
  ["does not exist", "none.example", "host name does not resolve: none.example does not exist (NXDOMAIN)"],
  [
    "is looked up by a server that fails",
    "failing.example",
    "host name could not be looked up: the DNS server failed for failing.example (SERVFAIL)",
  ],
  [
    "is looked up by a server that is silent",
    "silent.example",
    "DNS lookup of silent.example timed out after 0.2 s",
  ],
])("a name that %s causes a warning", async (_what, host, warning) => {
  expect(await warnings(`https://${host}:8443/hooks`)).toEqual([expect.stringContaining(SAVED + warning)]);
});

test("a name with private addresses only causes a warning, which does not contain them", async () => {
  const [warning, ...others] = await warnings("https://private.example/");
  expect(warning).toContain(`${SAVED}address refused: private.example does not resolve to a public address`);
  expect([others, warning]).toEqual([[], expect.not.stringContaining("10.20")]);
});

test.each<[string, string, NodeJS.ProcessEnv]>([
  ["a public address", "public.example", {}],
  ["an allowed network", "private.example", { DELIVERY_ALLOWED_NETWORKS: "10.0.0.0/8" }],
  ["an allowed name", "receiver.internal", { DELIVERY_ALLOWED_HOSTS: "*.internal" }],
  [
    "a name that the proxy looks up",
    "none.example",
    { DELIVERY_PROXY: "http://proxy.example", DELIVERY_PROXY_DNS: "remote" },
  ],
  ["a literal address, which was checked before", "8.8.8.8", {}],
  ["a literal IPv6 address", "[2606:4700::1111]", {}],
])("%s causes no warning", async (_what, host, environment) => {
  expect(await warnings(`https://${host}/`, environment)).toEqual([]);
});

test.each<[string, NodeJS.ProcessEnv]>([
  ["an allowed network", { DELIVERY_ALLOWED_NETWORKS: "10.0.0.0/8" }],
  ["an allowed name", { DELIVERY_ALLOWED_HOSTS: "private.example" }],
])(
  "%s of the operator causes a warning for a customer, whom another setting would allow it",
  async (_what, environment) => {
    const url = "https://private.example/";
    expect(await warnings(url, environment, "acme")).toEqual([
      expect.stringMatching(/does not resolve to a public address.*with CUSTOMER_ALLOWED_NETWORKS\)$/),
    ]);
    const allowed = { ...environment, CUSTOMER_ALLOWED_NETWORKS: "10.0.0.0/8" };
    expect(await warnings(url, allowed, "acme")).toEqual([]);
  },
);
