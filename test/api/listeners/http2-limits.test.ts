import { once } from "node:events";
import * as http2 from "node:http2";
import { type AddressInfo, createServer, connect as openSocket } from "node:net";
import { promisify } from "node:util";
import pino from "pino";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { limitConnections } from "../../../src/api/listeners/connection-limits.ts";
import { limitStreams } from "../../../src/api/listeners/http2-sessions.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { startTestApi } from "../../support/test-api.ts";
import { callGrpc } from "../../support/wire.ts";

const IDLE_MS = 300;
const CHECK = "/grpc.health.v1.Health/Check";
const PUBLISH = "/webhook.v1.EventService/PublishEvents";

const api = await startTestApi({
  limits: { http2MaxStreams: 50, http2ResetsPerSecond: 10, requestIdleMs: IDLE_MS },
});
afterAll(() => api.stop());

function openSession(): http2.ClientHttp2Session {
  const session = http2.connect(api.grpcUrl);
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

/** Starts a call and does not end its request. With a key unless the method needs none. */
function openCall(path: string, session = openSession()): http2.ClientHttp2Stream {
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc+proto",
    te: "trailers",
    ...(path.startsWith("/webhook.v1.") ? { "x-service-key": api.adminKey } : {}),
  });
  stream.on("error", () => {});
  return stream.resume();
}

describe("a session", () => {
  test("announces its limit of streams, and is closed when its client resets streams without end", async () => {
    const session = openSession();
    const [settings] = await once(session, "remoteSettings");
    expect(settings.maxConcurrentStreams).toBe(50);
    const closed = new Promise((resolve) => session.once("close", resolve));
    const flood = () => {
      for (let n = 0; n < 40 && !session.destroyed && !session.closed; n += 1) {
        const stream = openCall(CHECK, session);
        stream.once("ready", () => stream.close(http2.constants.NGHTTP2_CANCEL));
        stream.close(http2.constants.NGHTTP2_CANCEL);
      }
      if (!session.destroyed && !session.closed) setImmediate(flood);
    };
    flood();
    await closed;
    expect((await callGrpc(api, CHECK, { body: enveloped(Buffer.alloc(0)) })).status).toBe(0);
  });

  test("answers pings, and stays while its peer does; that of a silent peer is ended", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "setInterval", "clearTimeout", "clearInterval"] });
    onTestFinished(() => void vi.useRealTimers());
    const session = openSession();
    await once(session, "connect");
    const ping = promisify(session.ping.bind(session)) as () => Promise<unknown>;
    await ping();
    // HTTP/2's preface and an empty SETTINGS frame, and then not a word.
    const silent = openSocket(api.grpcPort as number, "127.0.0.1");
    onTestFinished(() => void silent.destroy());
    silent.on("error", () => {}).write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    silent.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]));
    await once(silent, "data");
    const pinged = once(session, "ping");
    await vi.advanceTimersByTimeAsync(30_000);
    await pinged;
    // Its answer to the service's ping has come before the next ping.
    await ping();
    const ended = once(silent.resume(), "close");
    await vi.advanceTimersByTimeAsync(20_000);
    await ended;
    await ping();
    expect(session.closed).toBe(false);
  });
});

test("an address whose streams are reset as soon as they arrive is blocked, and no call is made of most of them", async () => {
  let calls = 0;
  const server = http2.createServer((_request, response) => {
    calls += 1;
    response.end();
  });
  server.on("session", (session) => session.on("error", () => {}));
  const blocked = Promise.withResolvers<string>();
  limitStreams(server, () => false, blocked.resolve, 100);
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const session = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  await once(session, "connect");
  for (let n = 0; n < 200; n += 1)
    session
      .request()
      .on("error", () => {})
      .close(http2.constants.NGHTTP2_CANCEL);
  expect(await blocked.promise).toBe("127.0.0.1");
  expect(calls).toBeLessThan(100);
});

test("a blocked address loses its connections and gets no other, while others are served", async () => {
  const server = createServer((socket) => void socket.on("error", () => {}).write("served"));
  const { block } = limitConnections(server, {
    max: 100,
    maxPerAddress: 100,
    isTrusted: () => false,
    log: pino({ level: "silent" }),
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const open = (localAddress: string) => {
    const socket = openSocket({ host: "127.0.0.1", port, localAddress });
    onTestFinished(() => void socket.destroy());
    return socket.on("error", () => {});
  };
  const first = open("127.0.0.2");
  await once(first, "data");
  const ended = once(first.resume(), "close");
  block("127.0.0.2");
  await ended;
  const second = open("127.0.0.2");
  let served = false;
  second.on("data", () => {
    served = true;
  });
  await once(second, "close");
  expect(served).toBe(false);
  await once(open("127.0.0.1"), "data");
});

describe("a stream whose client sends nothing more", () => {
  test.each([
    CHECK,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/webhook.v1.WebhookService/ListWebhooks",
  ])("is ended when it is a call of %s", async (path) => {
    const stream = openCall(path);
    const closed = once(stream, "close");
    const [trailers] = await once(stream, "trailers");
    expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual([
      "1",
      "the request was incomplete, and nothing or less than 16 KiB/s arrived for 0.3 s; send it again",
    ]);
    await closed;
  });

  test("is ended when it has no method", async () => {
    await once(openCall("/webhook.v1.WebhookService/Nope"), "close");
  });

  test("is ended when it publishes events and stops within a message, and its memory is free for other calls", async () => {
    // Together as much as the service holds of the messages of a key.
    const length = 4 * 1_024 * 1_024;
    const part = enveloped(Buffer.alloc(length)).subarray(0, length - 1_024);
    // Each on its own session, since Node bounds the memory of one.
    const stalled = Array.from({ length: 2 }, () => openCall(PUBLISH));
    for (const stream of stalled) stream.write(part);
    const trailers = await Promise.all(stalled.map((stream) => once(stream, "trailers")));
    expect(trailers.map(([{ "grpc-status": status }]) => status)).toEqual(["1", "1"]);
    const event = orderEvent();
    event.data.value.orderNumber = "9".repeat(200_000);
    expect(await api.client(EventService).publishEvent(event)).toMatchObject({ duplicate: false });
  });

  test("lives on when it publishes events or watches the overview", async () => {
    const gone = new AbortController();
    const watched = api.client(StatsService).watchOverview({}, { signal: gone.signal });
    const overview = watched[Symbol.asyncIterator]();
    expect((await overview.next()).done).toBe(false);
    const next = overview.next();
    const idle = Promise.withResolvers<void>();
    const published = api.client(EventService).publishEvents(
      (async function* () {
        yield { events: [orderEvent()] };
        await idle.promise;
        yield { events: [orderEvent()] };
      })(),
    );
    // Calls that may not idle are ended meanwhile: the others have been idle for as long.
    await once(openCall(CHECK), "close");
    await once(openCall(CHECK), "close");
    idle.resolve();
    expect((await published).results.map(({ result }) => result.case)).toEqual(["published", "published"]);
    const state = await Promise.race([next.then(({ done }) => (done ? "ended" : "open")), "open"]);
    expect(state).toBe("open");
    gone.abort();
    await next.catch(() => {});
  });
});

test.each(["POST", "HEAD"])(
  "a stream is closed after the answer to %s, however long the body that nobody reads",
  async (method) => {
    const path = method === "HEAD" ? CHECK : "/a.b.C/D";
    const headers = { ":method": method, ":path": path, "content-type": "application/grpc" };
    const stream = openSession().request(headers, { endStream: false });
    const closed = once(stream.resume(), "close");
    // More than the window of a stream.
    stream.end(Buffer.alloc(100_000));
    const [answer] = await once(stream, "response");
    expect(answer[":status"]).toBe(path === CHECK ? 405 : 200);
    await closed;
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_NO_ERROR);
  },
);
