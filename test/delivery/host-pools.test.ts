import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HostPools } from "../../src/delivery/host-pools.ts";
import type { Outcome } from "../../src/delivery/outcome.ts";
import { post } from "../../src/delivery/post.ts";
import { type Certificate, createLocalAuthority } from "../../src/dev/certificates.ts";
import { type Receiver, startReceiver } from "../../src/dev/receiver.ts";

let certificate: Certificate;
let authority: string;
const receivers: Receiver[] = [];

beforeAll(async () => {
  const local = await createLocalAuthority();
  authority = local.cert;
  certificate = await local.issue(["localhost"]);
});
afterAll(() => Promise.all(receivers.map((receiver) => receiver.close())));

async function hosts(count: number, answer: () => Promise<number> = async () => 200): Promise<Receiver[]> {
  const started = await Promise.all(Array.from({ length: count }, () => startReceiver(certificate, answer)));
  receivers.push(...started);
  return started;
}

function pools(maxHosts: number, keepAliveTimeout = 10_000): HostPools {
  return new HostPools(maxHosts, {
    connections: 4,
    keepAliveTimeout,
    connect: { ca: authority },
    allowH2: false,
  });
}

const send = (client: HostPools, { url }: Receiver) =>
  new Promise<Outcome>((outcome) =>
    post(client, { origin: url, path: "/", headers: [], body: "{}" }, 5_000, { outcome }),
  );

describe("the connections of a process", () => {
  test("are kept for so many hosts only: the one idle for longest makes room", async () => {
    const client = pools(3);
    const all = await hosts(8);
    for (const host of all) expect(await send(client, host)).toMatchObject({ delivered: true });
    expect(client.size).toEqual({ hosts: 3, connections: 3 });
    expect(await send(client, all[0] as Receiver)).toMatchObject({ delivered: true });
    await client.destroy();
  });

  test("are never taken from a host that is busy", async () => {
    const client = pools(2);
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let arrived = 0;
    const busy = await hosts(4, async () => {
      arrived += 1;
      await held;
      return 200;
    });
    const under = busy.map((host) => send(client, host));
    await expect.poll(() => arrived).toBe(4);
    expect(client.size.hosts).toBe(4);
    release();
    expect((await Promise.all(under)).every(({ delivered }) => delivered)).toBe(true);
    await client.destroy();
  });

  test("are closed when idle, and their host is forgotten", async () => {
    const client = pools(10, 50);
    const [host] = await hosts(1);
    await send(client, host as Receiver);
    await expect.poll(() => client.size).toEqual({ hosts: 0, connections: 0 });
    await client.destroy();
  });

  test("are bounded for each host", async () => {
    const client = pools(10);
    const [host] = await hosts(1);
    const outcomes = await Promise.all(Array.from({ length: 40 }, () => send(client, host as Receiver)));
    expect(outcomes.every(({ delivered }) => delivered)).toBe(true);
    expect(client.size.connections).toBeLessThanOrEqual(4);
    await client.destroy();
  });
});
