import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { NameResolver } from "../../src/lib/egress/name-resolver.ts";
import { startConnectProxy } from "../lib/egress/proxies.ts";
import { startNameServer } from "../support/name-server.ts";
import { aReceiver, trustedAuthority } from "../support/receivers.ts";
import { freshRun, pump, queueFor, states, useEngine } from "./engine-parts.ts";

const authority = await trustedAuthority();
const NO_NETWORKS = { DELIVERY_ALLOWED_NETWORKS: "192.0.2.0/24" };

/** Delivers an event to a name, and answers the states of the delivery. */
async function deliver(host: string, settings: Record<string, string>, resolver?: NameResolver) {
  const receiver = await aReceiver(undefined, await authority.issue([host]));
  const parts = await useEngine({ ...NO_NETWORKS, ...settings }, resolver ? { resolver } : {});
  await queueFor(parts, `https://${host}:${receiver.port}`, { webhooks: 1, events: 1 });
  await pump(parts.engine, await freshRun(parts.db));
  return { states: await states(parts), received: receiver.received.length, port: receiver.port };
}

/** A resolver in a Kubernetes cluster that answers SERVFAIL for names outside of it. */
async function inCluster() {
  const server = await startNameServer(({ name }) => {
    if (name === "receiver.team-a.svc.cluster.local") return { addresses: ["127.0.0.1"] };
    return { code: name.endsWith(".cluster.local") ? "NXDOMAIN" : "SERVFAIL" };
  });
  onTestFinished(server.close);
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-cluster-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const resolverFile = path.join(folder, "resolv.conf");
  const search = "team-b.svc.cluster.local svc.cluster.local cluster.local";
  await writeFile(resolverFile, `nameserver 127.0.0.1\nsearch ${search}\noptions ndots:5\n`);
  return new NameResolver({ resolverFile, hostsFile: "/nonexistent", port: server.port });
}

test.each([
  ["receiver.team-a.svc", { "delivered 1": 1 }],
  ["*.team-a.svc", { "delivered 1": 1 }],
  ["*.svc.cluster.local", { "retrying 1": 1 }],
])(
  "with DELIVERY_ALLOWED_HOSTS=%s, the state of a delivery to a service of the cluster is %j",
  async (allowed, expected) => {
    const settings = { DELIVERY_ALLOWED_HOSTS: allowed };
    const made = await deliver("receiver.team-a.svc", settings, await inCluster());
    expect([made.states, made.received]).toEqual([expected, "delivered 1" in expected ? 1 : 0]);
  },
);

test("with DELIVERY_PROXY_DNS=remote, the proxy gets the name, which this machine cannot resolve", async () => {
  const proxy = await startConnectProxy();
  onTestFinished(() => proxy.close());
  const settings = { DELIVERY_PROXY: `http://127.0.0.1:${proxy.port}`, DELIVERY_PROXY_DNS: "remote" };
  const made = await deliver("receiver.internal", settings);
  expect([made.states, made.received]).toEqual([{ "delivered 1": 1 }, 1]);
  expect(proxy.targets).toEqual([`receiver.internal:${made.port}`]);
});
