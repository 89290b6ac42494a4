import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import tls from "node:tls";
import { Worker } from "node:worker_threads";
import ipaddr from "ipaddr.js";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../../demo/certificates.ts";
import { type Receiver, type Reply, startReceiver } from "../../../demo/receiver.ts";
import type { Network } from "../../../src/config/values.ts";
import type { Connections } from "../../../src/delivery/http/connections.ts";
import { createHttpClient } from "../../../src/delivery/http/http-client.ts";
import { NameResolver, type Resolver } from "../../../src/delivery/http/name-resolver.ts";
import { createAddressGuard } from "../../../src/delivery/request/address-guard.ts";
import { describeFault, type Outcome, parseRetryAfter } from "../../../src/delivery/request/outcome.ts";
import { post } from "../../../src/delivery/request/post.ts";
import { setTrapOnBlockedPort } from "../../faults/trap.ts";
import { anyPort } from "../../support/any-port.ts";
import { startNameServer } from "../../support/name-server.ts";

let authority: LocalAuthority;
let certificate: Certificate;
let client: Connections;
const receivers: Receiver[] = [];
const TIMEOUT_MS = 1_000;
const LOOPBACK = ipaddr.parseCIDR("127.0.0.0/8") as Network;

beforeAll(async () => {
  authority = await createLocalAuthority();
  certificate = await authority.issue(["localhost", "127.0.0.1"]);
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), authority.cert]);
  client = createHttpClient(createAddressGuard([LOOPBACK]), 1_000);
});

afterAll(async () => {
  await client.destroy();
  await Promise.all(receivers.map((receiver) => receiver.close()));
});

async function receiver(reply?: Reply, own = certificate): Promise<Receiver> {
  const started = await startReceiver(own, reply);
  receivers.push(started);
  return started;
}

function send(origin: string, via = client, timeoutMs = TIMEOUT_MS) {
  const request = { origin, path: "/hooks?a=1", headers: ["X-Service-Webhook-Id", "id-1"], body: '{"A":1}' };
  return new Promise<Outcome>((outcome) => post(via, request, timeoutMs, outcome));
}

/** A receiver that answers while this thread stands still. @returns its origin */
async function receiverInThread(answerMs: number): Promise<string> {
  const program = `
    const { parentPort, workerData } = require("node:worker_threads");
    const { certificate, answerMs } = workerData;
    const server = require("node:https").createServer(certificate, (request, response) => {
      setTimeout(() => response.end("noted"), answerMs);
    });
    server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));`;
  const thread = new Worker(program, { eval: true, workerData: { certificate, answerMs } });
  onTestFinished(async () => void (await thread.terminate()));
  const [port] = await once(thread, "message");
  return `https://localhost:${port}`;
}

/** Nothing runs in this thread meanwhile, as in a process that is stopped. */
const standStill = (ms: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

describe("one POST", () => {
  test.each([200, 201, 202, 204, 299])("is delivered by %i", async (status) => {
    const { url } = await receiver(() => status);
    expect(await send(url)).toMatchObject({ delivered: true, status, error: null });
  });

  test.each([400, 404, 410, 429, 500, 503])("is not delivered by %i", async (status) => {
    const { url } = await receiver(() => status);
    expect(await send(url)).toMatchObject({ delivered: false, status, error: null });
  });

  test("keeps the header names in their case, the path and the body as given", async () => {
    const { url, received } = await receiver();
    await send(url);
    expect(received[0]).toMatchObject({ path: "/hooks?a=1", body: '{"A":1}' });
    expect(received[0]?.rawHeaders).toContain("X-Service-Webhook-Id");
  });

  test("follows no redirect: the target is not visited and the status is recorded", async () => {
    const target = await receiver();
    const { url } = await receiver((_request, response) => {
      response.writeHead(308, { location: target.url }).end();
      return undefined;
    });
    expect(await send(url)).toMatchObject({ delivered: false, status: 308 });
    expect(target.received).toHaveLength(0);
  });

  test("keeps the first 1 KiB of the response and cuts off what is over 64 KiB; the status decides", async () => {
    let sent = 0;
    const { url } = await receiver((_request, response) => {
      response.writeHead(200);
      const more = () => {
        while (!response.destroyed && sent < 1e9 && response.write("x".repeat(16_384))) sent += 16_384;
      };
      response.on("drain", more);
      more();
      return undefined;
    });
    const outcome = await send(url);
    expect(outcome).toMatchObject({ delivered: true, status: 200, responseStart: "x".repeat(1_024) });
    expect(sent).toBeLessThan(50_000_000);
  });

  test("keeps the headers of a response that is no success, without cookies and up to 2 KiB", async () => {
    const { url } = await receiver((request, response) => {
      const status = request.attempt === 1 ? 503 : 200;
      response.writeHead(status, {
        "retry-after": "5",
        "set-cookie": ["session=s3cret", "b=2"],
        "x-long": "x".repeat(3_000),
      });
      response.end();
      return undefined;
    });
    const { responseHeaders } = await send(url);
    const kept = JSON.parse(responseHeaders ?? "[]") as string[];
    expect(kept.slice(0, 2)).toEqual(["retry-after", "5"]);
    expect(kept.filter((_, n) => n % 2 === 0)).toEqual([
      "retry-after",
      "date",
      "connection",
      "keep-alive",
      "transfer-encoding",
    ]);
    expect(responseHeaders).not.toContain("s3cret");
    expect((await send(url)).responseHeaders).toBeNull();
  });

  test("does not unpack a compressed response", async () => {
    const { url, received } = await receiver((_request, response) => {
      response.writeHead(200, { "content-encoding": "gzip" }).end(Buffer.from([0x1f, 0x8b, 0, 0]));
      return undefined;
    });
    expect(await send(url)).toMatchObject({ delivered: true, status: 200 });
    expect(received).toHaveLength(1);
  });

  test("is late when no response comes within the time-out", async () => {
    const { url } = await receiver(() => undefined);
    expect(await send(url)).toMatchObject({
      delivered: false,
      status: null,
      error: "no response within 1 s",
      failure: "webhook timeout",
    });
  });

  test("is answered in time by a response that came while this process stood still beyond the time-out", async () => {
    const request = { origin: await receiverInThread(50), path: "/", headers: [], body: "{}" };
    const outcome = await new Promise<Outcome>((resolve) =>
      post(client, request, TIMEOUT_MS, resolve, {
        maySend() {
          setImmediate(() => standStill(TIMEOUT_MS + 200));
          return true;
        },
        withdrawn: () => {},
      }),
    );
    expect(outcome).toMatchObject({ delivered: true, status: 200, error: null, failure: null });
  });

  test("charges no host with a connection that was not made since this process stood still", async () => {
    const silent = createServer().listen(0, "127.0.0.1");
    await once(silent, "listening");
    onTestFinished(() => void silent.close());
    const sending = send(`https://localhost:${(silent.address() as AddressInfo).port}`, client, 100);
    standStill(1_500);
    expect(await sending).toMatchObject({
      delivered: false,
      error: "no connection within 0.1 s, DNS lookup included",
      failure: "ours",
    });
  });

  test.each([
    [200, true],
    [500, false],
  ])(
    "is decided by the status %i when the body does not end within the time-out",
    async (status, delivered) => {
      const { url } = await receiver((_request, response) => {
        response.writeHead(status).write("and then nothing");
        return undefined;
      });
      expect(await send(url)).toMatchObject({
        delivered,
        status,
        error: null,
        responseStart: "and then nothing",
        failure: null,
      });
    },
  );

  test.each([
    [201, true, null],
    [429, false, "Retry-After: 7 s"],
  ])(
    "is decided by the status %i when the connection breaks off amid the response",
    async (status, delivered, error) => {
      const { url } = await receiver((_request, response) => {
        response.writeHead(status, { "content-length": "100", "retry-after": "7" }).write("half");
        setImmediate(() => response.socket?.destroy());
        return undefined;
      });
      expect(await send(url)).toMatchObject({
        delivered,
        status,
        error,
        retryAfterMs: 7_000,
        failure: null,
      });
    },
  );

  test("is charged to the webhook when the connection ends without a response", async () => {
    const { url, received } = await receiver((_request, response) => {
      response.socket?.destroy();
      return undefined;
    });
    expect(await send(url)).toMatchObject({
      delivered: false,
      status: null,
      error: expect.stringMatching(/connection/),
      failure: "webhook",
    });
    expect(received).toHaveLength(1);
  });

  test("tells of a refused connection", async () => {
    expect(await send(`https://127.0.0.1:${await anyPort()}`)).toMatchObject({
      error: "connection refused (ECONNREFUSED)",
      failure: "host",
    });
  });

  test("tells of a name that does not resolve", async () => {
    expect(await send("https://no-such-host.invalid")).toMatchObject({
      error: expect.stringMatching(/does not resolve|could not be looked up/),
    });
  });

  test("tells of an expired certificate", async () => {
    const day = 86_400_000;
    const expired = await authority.issue(["localhost"], {
      notBefore: new Date(Date.now() - 3 * day),
      notAfter: new Date(Date.now() - day),
    });
    const { url, received } = await receiver(undefined, expired);
    expect(await send(url)).toMatchObject({ error: "certificate has expired (CERT_HAS_EXPIRED)" });
    expect(received).toHaveLength(0);
  });

  test("tells of a certificate for another host, and of an unknown authority", async () => {
    const other = await receiver(undefined, await authority.issue(["other.example"]));
    expect(await send(other.url)).toMatchObject({
      error: expect.stringMatching(/certificate is for another host/),
    });
    const stranger = await receiver(undefined, await (await createLocalAuthority()).issue(["localhost"]));
    expect(await send(stranger.url)).toMatchObject({ error: expect.stringMatching(/certificate/) });
  });

  test("verifies certificates whatever NODE_TLS_REJECT_UNAUTHORIZED says", async () => {
    const stranger = await receiver(undefined, await (await createLocalAuthority()).issue(["localhost"]));
    const other = await receiver(undefined, await authority.issue(["other.example"]));
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    try {
      expect(await send(stranger.url)).toMatchObject({ error: expect.stringMatching(/certificate/) });
      expect(await send(other.url)).toMatchObject({ error: expect.stringMatching(/for another host/) });
    } finally {
      vi.unstubAllEnvs();
    }
    expect([...stranger.received, ...other.received]).toEqual([]);
  });

  test("tells of a receiver that does not speak HTTP", async () => {
    const server = tls
      .createServer({ ...certificate }, (socket) => socket.end("220 mail.example ESMTP\r\n"))
      .listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as { port: number };
    expect(await send(`https://localhost:${port}`)).toMatchObject({
      delivered: false,
      error: expect.stringMatching(/not HTTP/),
    });
    server.close();
  });

  test("is not sent to a private address, by literal or by name", async () => {
    const { url, received } = await receiver();
    const guarded = createHttpClient(createAddressGuard([]), 1_000);
    expect(await send(url, guarded)).toMatchObject({ error: expect.stringMatching(/address refused/) });
    expect(await send(url.replace("localhost", "127.0.0.1"), guarded)).toMatchObject({
      error: expect.stringMatching(/address refused/),
    });
    expect(received).toHaveLength(0);
    await guarded.destroy();
  });

  test.each(["localhost", "127.0.0.1"])("opens no socket to a blocked port of %s", async (host) => {
    const blocked = await setTrapOnBlockedPort();
    const { port } = blocked;
    expect(await send(`https://${host}:${port}`)).toMatchObject({
      error: expect.stringMatching(new RegExp(`^address refused: port ${port} .*DELIVERY_ALLOWED_PORTS`)),
      failure: "host",
    });
    expect(blocked.connections()).toBe(0);
    const guard = createAddressGuard([LOOPBACK], { allowedPorts: [port] });
    const lenient = createHttpClient(guard, 1_000);
    await send(`https://${host}:${port}`, lenient);
    expect(blocked.connections()).toBe(1);
    await lenient.destroy();
    await blocked.close();
  });

  test("has the whole time-out of a connection after the lookup of its name", async () => {
    const { url, port } = await receiver();
    // Together more than the five seconds that a connection has.
    const names: Resolver = {
      async resolve() {
        await wait(2_600);
        return [{ address: "127.0.0.1", family: 4 }];
      },
      close() {},
    };
    const slow = createServer(async (socket) => {
      await wait(2_600);
      socket.on("error", () => {});
      const onward = connect(port, "127.0.0.1").on("error", () => {});
      socket.pipe(onward).pipe(socket);
    }).listen(0, "127.0.0.1");
    await once(slow, "listening");
    const patient = createHttpClient(createAddressGuard([LOOPBACK], { resolver: names }), 1_000);
    const origin = url.replace(String(port), String((slow.address() as AddressInfo).port));
    expect(await send(origin, patient, 60_000)).toMatchObject({ delivered: true, status: 200 });
    await patient.destroy();
    slow.close();
  });

  test("goes to the next address of a name where the first one refuses, and tells of a refusal where all do", async () => {
    const { port, received } = await receiver();
    const names: Resolver = {
      resolve: async (name) => [
        { address: "127.0.0.2", family: 4 },
        { address: name === "localhost" ? "127.0.0.1" : "127.0.0.3", family: 4 },
      ],
      close() {},
    };
    const patient = createHttpClient(createAddressGuard([LOOPBACK], { resolver: names }), 1_000);
    expect(await send(`https://localhost:${port}`, patient)).toMatchObject({ delivered: true });
    expect(received).toHaveLength(1);
    expect(await send(`https://other.example:${port}`, patient)).toMatchObject({
      error: "connection refused (ECONNREFUSED)",
    });
    await patient.destroy();
  });

  test("tells of what happened at an address that could be tried, not of one without a route", () => {
    const coded = (code: string) => Object.assign(new Error(code), { code });
    const all = new AggregateError([coded("ENETUNREACH"), coded("ECONNREFUSED")]);
    expect(describeFault(all)).toBe("connection refused (ECONNREFUSED)");
    expect(describeFault(new AggregateError([coded("ENETUNREACH")]))).toMatch(/^network unreachable/);
  });

  test("ends its lookup when it is late, and says so", async () => {
    const nameServer = await startNameServer(() => undefined);
    const resolver = new NameResolver({ servers: [nameServer.address], timeoutMs: TIMEOUT_MS });
    const waiting = createHttpClient(createAddressGuard([], { resolver }), 1_000);
    expect(await send("https://slow.example", waiting)).toMatchObject({
      error: expect.stringMatching(
        /^(no connection within 1 s, DNS lookup included|DNS lookup .* timed out)/,
      ),
      failure: "host timeout",
    });
    await expect.poll(() => resolver.size.running).toBe(0);
    await waiting.destroy();
    await nameServer.close();
  });

  test("goes over the connection of the one before", async () => {
    const connections = new Set<unknown>();
    const { url } = await receiver((_request, response) => {
      connections.add(response.socket?.remotePort);
      return 200;
    });
    for (let i = 0; i < 20; i += 1) await send(url);
    expect(connections.size).toBe(1);
  });
});

describe("Retry-After", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");

  test.each([
    ["120", 120_000],
    ["35.9", 35_900],
    ["1.5", 1_500],
    ["40.12", 40_120],
    ["40;", null],
    ["Thu, 01 Jan 2026 00:02:00 GMT", 120_000],
    ["999999", 3_600_000],
    ["Fri, 01 Jan 2027 00:00:00 GMT", 3_600_000],
    ["0", null],
    ["-5", null],
    ["soon", null],
    ["Wed, 31 Dec 2025 00:00:00 GMT", null],
    [undefined, null],
  ])("%s asks for a wait of %s ms", (header, expected) => {
    expect(parseRetryAfter(header, now)).toBe(expected);
  });
});
