import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createSecureServer } from "node:http2";
import { connect, createServer, type Server } from "node:net";
import tls from "node:tls";
import { Worker } from "node:worker_threads";
import { expect, onTestFinished, test, vi } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import type { Reply } from "../../../demo/receiver.ts";
import { secretsIn } from "../../../src/delivery/request/additions.ts";
import { parseRetryAfter } from "../../../src/delivery/request/outcome.ts";
import { describeFault } from "../../../src/lib/egress/faults.ts";
import { lookupError } from "../../../src/lib/egress/name-resolver.ts";
import { Pacer } from "../../../src/lib/egress/pacer.ts";
import { setTrapOnBlockedPort } from "../../faults/trap.ts";
import { anyPort } from "../../support/any-port.ts";
import { holdTime } from "../../support/held-time.ts";
import { aReceiver, localCertificate, trustedAuthority } from "../../support/receivers.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";
import { until } from "../../support/wait.ts";
import { aClient, deliver, listening, namesAt, send } from "../http-parts.ts";

const certificate = await localCertificate();
const authority = await trustedAuthority();
const aStranger = async () => (await createLocalAuthority()).issue(["localhost"]);

test.each([
  [200, { "retry-after": "120" }, null],
  [299, {}, null],
  [
    302,
    { location: "/elsewhere" },
    "redirects are not followed; register the URL that the receiver redirects to",
  ],
  [
    308,
    { location: "/elsewhere", "retry-after": "9" },
    "redirects are not followed; register the URL that the receiver redirects to",
  ],
  [404, {}, null],
  [429, { "retry-after": "120" }, "Retry-After: 120 s"],
  [429, { "retry-after": "soon" }, null],
  [503, { "retry-after": "999999" }, "Retry-After: 3600 s, the maximum"],
])("status %i with %o is recorded with what it does not say itself: %s", async (status, headers, error) => {
  const { url, received } = await aReceiver((_request, response) => {
    response.writeHead(status, headers).end();
    return undefined;
  });
  const expected = { delivered: status < 300, status, error, failure: null, responseStart: null };
  expect(await send(aClient(), url)).toMatchObject(expected);
  expect(received).toHaveLength(1);
});

test("a receiver that also speaks HTTP/2 gets HTTP/1.1, in which header names keep their case", async () => {
  const names: string[] = [];
  const server = createSecureServer({ ...certificate, allowHTTP1: true }, (request, response) => {
    names.push(request.httpVersion, ...request.rawHeaders);
    response.end();
  });
  const { origin } = await listening(server);
  expect(await send(aClient(), origin, { headers: ["X-Service-Id", "1"] })).toMatchObject({ status: 200 });
  expect(names).toEqual(expect.arrayContaining(["1.1", "X-Service-Id"]));
});

test("the first 1 KiB of a response is kept, and what is over 64 KiB cut off; the status decides", async () => {
  let sent = 0;
  const { url } = await aReceiver((_request, response) => {
    response.writeHead(200);
    const more = () => {
      while (!response.destroyed && sent < 1e9 && response.write("x".repeat(16_384))) sent += 16_384;
    };
    response.on("drain", more);
    more();
    return undefined;
  });
  const outcome = await send(aClient(), url);
  expect(outcome).toMatchObject({ delivered: true, status: 200, responseStart: "x".repeat(1_024) });
  expect(sent).toBeLessThan(50_000_000);
});

test("an attempt that failed says where its time went, up to the part in which it ended, if it opened a connection", async () => {
  const client = aClient();
  const { url } = await aReceiver(({ path }) =>
    path === "/fail" ? 503 : path === "/hang" ? undefined : 200,
  );
  const parts = async (options: Parameters<typeof send>[2], origin = url) =>
    (await send(client, origin, options)).timing?.split(" ").map(Number).length ?? null;
  // DNS, connection, TLS, response headers, body.
  expect(await parts({ path: "/fail" })).toBe(5);
  expect(await parts({ path: "/fail" })).toBeNull();
  expect(await parts({})).toBeNull();
  expect(await parts({}, `https://localhost:${await anyPort()}`)).toBe(2);
  expect(await parts({}, "https://gone.invalid")).toBe(1);
});

test("the headers of a response that is no success are kept, without cookies and up to 2 KiB", async () => {
  const { url } = await aReceiver(({ path }, response) => {
    const cookies = ["session=s3cret", "b=2"];
    const headers = { "retry-after": "5", "set-cookie": cookies, "x-long": "x".repeat(3_000), date: "d" };
    response.writeHead(path === "/fail" ? 503 : 200, headers).end();
    return undefined;
  });
  const client = aClient();
  const { responseHeaders } = await send(client, url, { path: "/fail" });
  const kept = JSON.parse(responseHeaders ?? "[]") as string[];
  expect(kept.slice(0, 4)).toEqual(["retry-after", "5", "date", "d"]);
  expect(responseHeaders).not.toMatch(/s3cret|x-long|cookie/);
  expect((await send(client, url)).responseHeaders).toBeNull();
});

test("secrets that a receiver repeats are hidden in what is kept of its response, also where the excerpt would cut them off", async () => {
  const token = "tok/en-0123456789";
  const headers = ["Authorization", `Bearer ${token}`, "X-Tenant", "4711", "X-Key", 'a"long\\value'];
  const { url, received } = await aReceiver(({ path, headers: got }, response) => {
    const told = String(got.authorization);
    response.writeHead(400, { "x-told": `got ${told}`, "x-key": got["x-key"] });
    response.end(
      `${"\u00e4".repeat(Number(path.slice(1)))}${told}${JSON.stringify(got)}${told.replace("/", "\\/")}`,
    );
    return undefined;
  });
  const client = aClient();
  const hidden = secretsIn(headers);
  for (const before of [0, 490, 505, 509, 511, 512]) {
    const { responseStart, responseHeaders } = await send(client, url, {
      path: `/${before}`,
      headers,
      hidden,
    });
    for (const kept of [responseStart, responseHeaders]) {
      expect(kept).not.toMatch(/tok|en-0|Bearer|long/);
      expect(Buffer.byteLength(kept ?? "")).toBeLessThanOrEqual(1_024);
    }
    expect(responseStart?.startsWith("\u00e4".repeat(before))).toBe(true);
    expect(JSON.parse(responseHeaders ?? "[]").slice(0, 4)).toEqual([
      "x-told",
      "got [hidden]",
      "x-key",
      "[hidden]",
    ]);
    if (before === 0)
      expect(responseStart).toMatch(/^\[hidden\]\{.*"authorization":"\[hidden\]","x-tenant":"4711"/);
  }
  expect(received[0]?.headers["x-key"]).toBe('a"long\\value');
});

test.each([
  ["when its time is over", { timeoutMs: 1_000 }],
  ["when the time is over that the webhook gives it", { ownTimeoutMs: 1_000 }],
  ["when its time is over, though the webhook gives it more", { timeoutMs: 1_000, ownTimeoutMs: 60_000 }],
])("an attempt without a response is charged to the webhook %s", async (_, timeouts) => {
  const { pass } = holdTime();
  const { url, until: has } = await aReceiver(() => {
    pass(1_000);
    return undefined;
  });
  const sent = send(aClient(), url, timeouts);
  await has((received) => received.length === 1);
  const late = {
    delivered: false,
    error: expect.stringMatching(/^no response within 1 s; /),
    failure: "webhook timeout",
  };
  expect(await sent).toMatchObject({ status: null, ...late });
});

const half: Reply = ({ path }, response) => {
  const headers = { "content-length": "100", "retry-after": "7" };
  response.writeHead(Number(path.slice(1)), headers).write("half");
  return undefined;
};
const breaksOff: Reply = (request, response) => {
  half(request, response);
  setImmediate(() => response.socket?.destroy());
  return undefined;
};
const HALF = [
  [200, { delivered: true, error: null }],
  [429, { delivered: false, error: "Retry-After: 7 s" }],
] as const;

test.each(HALF)("status %i decides when the body does not end in time", async (status, expected) => {
  const { url } = await aReceiver(half);
  const { url: other } = await aReceiver();
  const client = aClient();
  const { pass } = holdTime();
  const sent = send(client, url, { path: `/${status}`, timeoutMs: 1_000 });
  // By the second of these, what came before has been read.
  for (let n = 0; n < 2; n += 1) await send(client, other);
  pass(1_000);
  expect(await sent).toMatchObject({ ...expected, status, responseStart: "half", failure: null });
});

test.each(HALF)("status %i decides when the body breaks off", async (status, expected) => {
  const { url } = await aReceiver(breaksOff);
  const outcome = await send(aClient(), url, { path: `/${status}` });
  expect(outcome).toMatchObject({ ...expected, status, retryAfterMs: 7_000, failure: null });
});

/** Nothing runs in this thread meanwhile, as in a process that is stopped. */
const standStill = (ms: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test("a response that came while this process stood still beyond the timeout is in time", async () => {
  const program = `
    const { parentPort, workerData } = require("node:worker_threads");
    const server = require("node:https").createServer(workerData, (request, response) => response.end("noted"));
    server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));`;
  const thread = new Worker(program, { eval: true, workerData: certificate });
  onTestFinished(async () => void (await thread.terminate()));
  const [port] = await once(thread, "message");
  const client = aClient();
  const timeoutMs = 3_000;
  const outcome = await deliver(client, `https://localhost:${port}`, {
    timeoutMs,
    maySend() {
      setImmediate(() => standStill(timeoutMs + 200));
      return true;
    },
  });
  expect(outcome).toMatchObject({ delivered: true, status: 200, error: null, failure: null });
});

test("a connection that was not made since this process stood still is not charged to its host", async () => {
  const silent = await listening(createServer((socket) => void socket.resume()));
  const sending = send(aClient(), silent.origin, { timeoutMs: 100 });
  standStill(1_500);
  const error = expect.stringMatching(/^no connection within 0.1 s, DNS lookup included; /);
  expect(await sending).toMatchObject({ delivered: false, error, failure: "ours" });
  await until(() => silent.open.size === 0);
});

/** A server that reads the start of the TLS handshake and writes bytes of its own. */
const answering = (bytes: Buffer | string) =>
  createServer((socket) => socket.once("data", () => socket.write(bytes)));

/** A server that reads a request over TLS and writes bytes of its own. */
const answeringOverTls = (bytes: string) =>
  tls.createServer(certificate, (socket) => socket.once("data", () => socket.write(bytes)));

/** The ServerHello of a server that chooses TLS 1.0. */
function serverHello(): Buffer {
  const hello = Buffer.concat([Buffer.from([3, 1]), Buffer.alloc(32), Buffer.from([0, 0, 0x2f, 0])]);
  const handshake = Buffer.concat([Buffer.from([2, 0, 0, hello.length]), hello]);
  return Buffer.concat([Buffer.from([22, 3, 1, 0, handshake.length]), handshake]);
}

const alert = (description: number) => Buffer.from([21, 3, 3, 0, 2, 2, description]);
const of = (other: tls.TlsOptions) =>
  tls.createServer({ ...certificate, ...other }, (socket) => socket.end());
const old = () => of({ minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "ALL:@SECLEVEL=0" });
const expired = {
  notBefore: new Date(Date.now() - 3 * 86_400_000),
  notAfter: new Date(Date.now() - 86_400_000),
};
const hangsUp = () => createServer((socket) => socket.once("data", () => socket.end()));

test.each<[string, () => Server | Promise<Server>]>([
  ["this port does not speak TLS; it may speak plain HTTP", () => createHttpServer()],
  ["only supports TLS 1.1 or older; enable TLS 1.2 or 1.3 on the server (ERR_SSL_TLSV1_ALERT", old],
  ["only supports TLS 1.1 or older; enable TLS 1.2 or 1.3", () => answering(serverHello())],
  [
    "shares no cipher suite with this service, or demands a client certificate",
    () => of({ maxVersion: "TLSv1.2", ciphers: "NULL-SHA:@SECLEVEL=0" }),
  ],
  [
    "demands a client certificate, or refuses the webhook's; set one that the server accepts with",
    () => answering(alert(116)),
  ],
  [
    "has no certificate for this host name; add one for the URL's host (ERR_SSL_TLSV1_UNRECOGNIZED_NAME)",
    () => answering(alert(112)),
  ],
  [
    "closed the connection during the TLS handshake; check the TLS settings and the log of the server (ECONNRESET)",
    hangsUp,
  ],
  ["certificate has expired", async () => of(await authority.issue(["localhost"], expired))],
  ["certificate is for another host", async () => of(await authority.issue(["other.example"]))],
  ["an unknown authority, or the receiver does not send the intermediate", async () => of(await aStranger())],
  [
    "response is not HTTP; check that the port of the URL belongs to an HTTPS server",
    () => answeringOverTls("220 mail.example ESMTP\r\n"),
  ],
  [
    "only speaks HTTP/2; this service sends HTTP/1.1: enable HTTP/1.1 on the server (ERR_SSL_TLSV1_ALERT_NO_APP",
    () => createSecureServer({ ...certificate, allowHTTP1: false }),
  ],
  [
    "only speaks HTTP/2; this service sends HTTP/1.1: enable HTTP/1.1 on the server (HTTP2_ONLY)",
    () => answeringOverTls("\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"),
  ],
  [
    "TLS error: tlsv1 alert decode error; check the TLS settings and the log of the server (ERR_SSL_TLSV1_ALERT_DECODE_ERROR)",
    () => answering(alert(50)),
  ],
])("an attempt says what is wrong with its receiver: %s", async (words, server) => {
  const { origin } = await listening(await server());
  const error = expect.stringContaining(words);
  expect(await send(aClient(), origin)).toMatchObject({ delivered: false, status: null, error });
});

const REFUSED = /^connection refused; check that the server runs.* \(ECONNREFUSED\)$/;

test("a connection that ends without a response is charged to the webhook, and one that is refused to the host", async () => {
  const { url, received } = await aReceiver((_request, response) => {
    response.socket?.destroy();
    return undefined;
  });
  const error = expect.stringMatching(/connection/);
  expect(await send(aClient(), url)).toMatchObject({ status: null, error, failure: "webhook" });
  expect(received).toHaveLength(1);
  const refused = { error: expect.stringMatching(REFUSED), failure: "host" };
  expect(await send(aClient(), `https://127.0.0.1:${await anyPort()}`)).toMatchObject(refused);
});

test("an unknown certificate is charged to the host, and to the webhook alone if it has its own authorities", async () => {
  const { url } = await aReceiver(() => 200, await aStranger());
  expect(await send(aClient(), url)).toMatchObject({ failure: "host" });
  const tls = { client: null, authorities: authority.cert };
  expect(await send(aClient(), url, { tls })).toMatchObject({ failure: "tls" });
});

test("certificates are verified whatever NODE_TLS_REJECT_UNAUTHORIZED says", async () => {
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  onTestFinished(() => void vi.unstubAllEnvs());
  for (const wrong of [await aStranger(), await authority.issue(["other.example"])]) {
    const { url, received } = await aReceiver(() => 200, wrong);
    expect(await send(aClient(), url)).toMatchObject({ error: expect.stringMatching(/certificate/) });
    expect(received).toEqual([]);
  }
});

test.each(["localhost", "127.0.0.1"])("no private address or blocked port is dialled: %s", async (host) => {
  const { port, connections, close } = await setTrapOnBlockedPort();
  onTestFinished(close);
  const strict = aClient({ networks: [], allowedPorts: [port] });
  expect((await send(strict, `https://${host}:${port}`)).error).toMatch(/^address refused: (?!port)/);
  expect(await send(aClient(), `https://${host}:${port}`)).toMatchObject({
    error: expect.stringMatching(new RegExp(`^address refused: port ${port} .*DELIVERY_ALLOWED_PORTS`)),
    failure: "host",
  });
  expect(connections()).toBe(0);
  await send(aClient({ allowedPorts: [port] }), `https://${host}:${port}`);
  expect(connections()).toBe(1);
});

test("the next address of a name is tried where the first one refuses, and the refusal told where all do", async () => {
  const { port, received } = await aReceiver();
  const second = aClient({ resolver: namesAt("127.0.0.2", "127.0.0.1") });
  expect(await send(second, `https://localhost:${port}`)).toMatchObject({ delivered: true });
  expect(received).toHaveLength(1);
  const none = aClient({ resolver: namesAt("127.0.0.2", "127.0.0.3") });
  const { error } = await send(none, `https://other.example:${port}`);
  expect(error).toMatch(REFUSED);
});

test("an error tells of an address that could be tried, not of one without a route", () => {
  const errors = ["ENETUNREACH", "ECONNREFUSED"].map((code) => Object.assign(new Error(code), { code }));
  expect(describeFault(new AggregateError(errors))).toMatch(REFUSED);
});

test("the timeout of a connection begins after the lookup of its name and its turn", async () => {
  const { pass } = holdTime();
  const { port } = await aReceiver();
  const lookedUp = Promise.withResolvers<void>();
  const [address] = await namesAt("127.0.0.1").resolve("");
  const resolver = { resolve: () => lookedUp.promise.then(() => (address ? [address] : [])), close() {} };
  const opened = Promise.withResolvers<void>();
  const slow = await listening(
    createServer((socket) => {
      opened.resolve();
      // Together more than the five seconds that a connection has.
      pass(2_600);
      const onward = connect(port, "127.0.0.1").on("error", () => {});
      socket.pipe(onward).pipe(socket);
    }),
  );
  const sent = send(aClient({ resolver }), slow.origin, { timeoutMs: 60_000 });
  pass(2_600);
  lookedUp.resolve();
  await opened.promise;
  expect(await sent).toMatchObject({ delivered: true, status: 200 });
});

test("connections take turns at a limited rate, and requests whose names do not exist take none", async () => {
  const time = new SimulatedTime();
  const opened: number[] = [];
  // Answers no handshake, so that no connection is reused.
  const { port } = await listening(createServer(() => void opened.push(time.now)));
  const resolve = async (name: string) => {
    if (name.endsWith("missing.example")) throw lookupError(name, "ENOTFOUND");
    return [{ address: "127.0.0.1", family: 4 }];
  };
  const handshakes = new Pacer({ atOnce: 2, perSecond: 1 }, time.clock);
  const client = aClient({ resolver: { resolve, close() {} }, handshakes });
  for (let n = 0; n < 5; n += 1) {
    const { error, failure } = await send(client, `https://${n}.missing.example:${port}`);
    expect([error, failure]).toEqual([expect.stringContaining("does not exist (NXDOMAIN)"), "host timeout"]);
  }
  for (let n = 0; n < 4; n += 1) void send(client, `https://${n}.example:${port}`);
  await until(() => opened.length === 2);
  await time.run(1_000);
  await until(() => opened.length === 3);
  await time.run(2_000);
  await until(() => opened.length === 4);
  expect(opened).toEqual([0, 0, 1_000, 2_000]);
});

test.each([
  ["120", 120_000],
  ["35.9", 35_900],
  ["40.12", 40_120],
  ["40;", null],
  ["Thu, 01 Jan 2026 00:02:00 GMT", 120_000],
  ["Thursday, 01-Jan-26 00:02:00 GMT", 120_000],
  ["Thu Jan  1 00:02:00 2026", 120_000],
  ["999999", 3_600_000],
  ["9".repeat(400), 3_600_000],
  ["Fri, 01 Jan 2027 00:00:00 GMT", 3_600_000],
  ["0.001", 1],
  ["0", null],
  ["soon", null],
  ["Wed, 31 Dec 2025 00:00:00 GMT", null],
  [undefined, null],
])("Retry-After: %s asks for a wait of %s ms", (header, expected) => {
  expect(parseRetryAfter(header, Date.parse("2026-01-01T00:00:00Z"))).toBe(expected);
});
