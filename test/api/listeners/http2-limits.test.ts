import { once } from "node:events";
import * as http2 from "node:http2";
import { connect as openSocket, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { EventService, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { readConfig } from "../../../src/config/config.ts";
import { grpc } from "../../support/clients.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

const IDLE_MS = 1_000;
const CHECK = "/grpc.health.v1.Health/Check";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({
    limits: { http2MaxStreams: 50, http2ResetsPerSecond: 10, requestIdleMs: IDLE_MS },
  });
});
afterAll(() => api.stop());

function openSession(url = api.grpcUrl): http2.ClientHttp2Session {
  const session = http2.connect(url);
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

/** Starts a call and does not end its request. */
function openCall(session: http2.ClientHttp2Session, path: string, headers = {}): http2.ClientHttp2Stream {
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc+proto",
    te: "trailers",
    ...headers,
  });
  stream.on("error", () => {});
  return stream.resume();
}

/** Waits until a call whose request stays incomplete is ended. */
async function expectEnded(stream: http2.ClientHttp2Stream): Promise<void> {
  const [trailers] = await once(stream, "trailers");
  expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual([
    "1",
    "the request was incomplete, and nothing or less than 16 KiB/s arrived for 1 s; send it again",
  ]);
  if (!stream.closed) await once(stream, "close");
}

describe("a session", () => {
  test("is told how many streams it may open", async () => {
    const session = openSession();
    const [settings] = await once(session, "remoteSettings");
    expect(settings.maxConcurrentStreams).toBe(50);
  });

  test("is closed when its client resets streams without end, and others go on", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    const closed = new Promise((resolve) => session.once("close", resolve));
    let resets = 0;
    const flood = () => {
      for (let n = 0; n < 40 && !session.destroyed && !session.closed; n += 1, resets += 1) {
        const stream = openCall(session, CHECK);
        stream.once("ready", () => stream.close(http2.constants.NGHTTP2_CANCEL));
        stream.close(http2.constants.NGHTTP2_CANCEL);
      }
      if (!session.destroyed && !session.closed && resets < 100_000) setImmediate(flood);
    };
    flood();
    await closed;
    const other = openCall(openSession(), CHECK);
    other.end(enveloped(Buffer.alloc(0)));
    expect((await once(other, "trailers"))[0]["grpc-status"]).toBe("0");
  });
});

describe("a stream whose client sends nothing more", () => {
  test("is ended when it is a call of Check or ServerReflectionInfo, which need no key", async () => {
    const paths = [CHECK, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"];
    await Promise.all(paths.map((path) => expectEnded(openCall(openSession(), path))));
  });

  test("is ended when it is a unary call with a key, and when it has no method", async () => {
    const session = openSession();
    const listed = openCall(session, "/webhook.v1.WebhookService/ListWebhooks", {
      "x-service-key": api.adminKey,
    });
    const unknown = openCall(session, "/webhook.v1.WebhookService/Nope");
    await Promise.all([once(listed, "close"), once(unknown, "close")]);
  });

  test("is ended when it publishes events and stops within a message, and its memory is free for other calls", async () => {
    // Together as much as the service holds of messages over all calls.
    const length = 4 * 1_024 * 1_024;
    const part = enveloped(Buffer.alloc(length)).subarray(0, length - 1_024);
    const session = openSession();
    const stalled = Array.from({ length: 4 }, () =>
      openCall(session, "/webhook.v1.EventService/PublishEvents", { "x-service-key": api.adminKey }),
    );
    for (const stream of stalled) stream.write(part);
    const trailers = await Promise.all(stalled.map((stream) => once(stream, "trailers")));
    expect(trailers.map(([{ "grpc-status": status }]) => status)).toEqual(["1", "1", "1", "1"]);
    const events = createClient(EventService, grpc(api));
    const event = orderEvent();
    event.data.value.orderNumber = "9".repeat(200_000);
    expect(await events.publishEvent(event)).toMatchObject({ duplicate: false });
  });

  test("is ended when it publishes events and stops within a message whose start came with the end of another", async () => {
    const stream = openCall(openSession(), "/webhook.v1.EventService/PublishEvents", {
      "x-service-key": api.adminKey,
    });
    const next = enveloped(Buffer.alloc(4_096)).subarray(0, 8);
    stream.write(Buffer.concat([enveloped(Buffer.alloc(0)), next]));
    const [trailers] = await once(stream, "trailers");
    expect(trailers["grpc-status"]).toBe("1");
  });

  test("lives on when it publishes events or watches the overview", async () => {
    const transport = grpc(api);
    const gone = new AbortController();
    const overview = createClient(StatsService, transport)
      .watchOverview({}, { signal: gone.signal })
      [Symbol.asyncIterator]();
    expect((await overview.next()).done).toBe(false);
    let release = () => {};
    const idle = new Promise<void>((resolve) => {
      release = resolve;
    });
    const published = createClient(EventService, transport).publishEvents(
      (async function* () {
        yield { events: [orderEvent()] };
        await idle;
        yield { events: [orderEvent()] };
      })(),
    );
    // A call that may not idle is ended meanwhile: the others have been idle for as long.
    const witness = openCall(openSession(), CHECK);
    await once(witness, "close");
    const second = openCall(openSession(), CHECK);
    await once(second, "close");
    release();
    expect((await published).results.map(({ result }) => result.case)).toEqual(["published", "published"]);
    const next = await Promise.race([overview.next().then(() => "open"), Promise.resolve("open")]);
    expect(next).toBe("open");
    gone.abort();
  });
});

/** Sends a byte far more often than the idle timeout, until the stream ends. */
function trickle(stream: http2.ClientHttp2Stream): void {
  const timer = setInterval(() => stream.write(Buffer.alloc(1)), IDLE_MS / 10);
  stream.once("close", () => clearInterval(timer));
}

describe("a stream whose client sends a byte now and then", () => {
  test("is ended within a message of Check, which needs no key, of ListWebhooks and of PublishEvents", async () => {
    const key = { "x-service-key": api.adminKey };
    const calls: [string, object][] = [
      [CHECK, {}],
      ["/webhook.v1.WebhookService/ListWebhooks", key],
      ["/webhook.v1.EventService/PublishEvents", key],
    ];
    await Promise.all(
      calls.map(([path, headers]) => {
        const stream = openCall(openSession(), path, headers);
        stream.write(enveloped(Buffer.alloc(4_096)).subarray(0, 5));
        trickle(stream);
        return expectEnded(stream);
      }),
    );
  });

  test("is answered when it is a REST request, or one to an unknown path, and then ended", async () => {
    const authority = await createLocalAuthority();
    const own = await startTestApi({
      tls: await authority.issue(["localhost"]),
      limits: { requestIdleMs: IDLE_MS },
    });
    onTestFinished(() => own.stop());
    const session = http2.connect(own.url, { ca: authority.cert });
    session.on("error", () => {});
    onTestFinished(() => session.destroy());
    const ended = async (path: string) => {
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        "content-type": "application/json",
        "x-service-key": own.adminKey,
      });
      stream.on("error", () => {});
      trickle(stream);
      const [answer] = await once(stream, "response");
      const body = await text(stream);
      return [answer[":status"], JSON.parse(body).Warnings[0]];
    };
    expect(await Promise.all([ended("/api/webhook"), ended("/api/nope")])).toEqual([
      [400, "the request did not arrive within 1 s; send it again"],
      [404, expect.stringContaining("no such path")],
    ]);
  });
});

test("a message that arrives slowly, for longer than the idle timeout, is read to its end", async () => {
  const stream = openCall(openSession(), "/webhook.v1.EventService/PublishEvent", {
    "x-service-key": api.adminKey,
  });
  const event = orderEvent();
  event.data.value.orderNumber = "9".repeat(100_000);
  const message = enveloped(toBinary(PublishEventRequestSchema, create(PublishEventRequestSchema, event)));
  const answered = once(stream, "trailers");
  for (let at = 0; at < message.byteLength; at += 4_096) {
    stream.write(message.subarray(at, at + 4_096));
    await setTimeout(IDLE_MS / 10);
  }
  stream.end();
  expect((await answered)[0]["grpc-status"]).toBe("0");
});

test("a stream of events is read for longer than the idle timeout if each message starts with the end of another", async () => {
  const stream = openCall(openSession(), "/webhook.v1.EventService/PublishEvents", {
    "x-service-key": api.adminKey,
  });
  const answered = once(stream, "trailers");
  const message = enveloped(Buffer.alloc(0));
  stream.write(message.subarray(0, 3));
  for (let n = 0; n < 20; n += 1) {
    await setTimeout(IDLE_MS / 10);
    stream.write(Buffer.concat([message.subarray(3), message.subarray(0, 3)]));
  }
  stream.end(message.subarray(3));
  expect((await answered)[0]["grpc-status"]).toBe("0");
});

test.each([
  ["POST", "/a.b.C/D"],
  ["HEAD", "/a.b.C/D"],
  ["HEAD", CHECK],
])(
  "%s to %s is answered and its stream closed, however long the body that nobody reads",
  async (method, path) => {
    const stream = openSession().request(
      { ":method": method, ":path": path, "content-type": "application/grpc" },
      { endStream: false },
    );
    const closed = once(stream.resume(), "close");
    // More than the window of a stream.
    stream.end(Buffer.alloc(100_000));
    const [answer] = await once(stream, "response");
    expect(answer[":status"]).toBe(path === CHECK ? 405 : 200);
    await closed;
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_NO_ERROR);
  },
);

test("one address has a limited number of calls without a key in flight", async () => {
  const own = await startTestApi();
  onTestFinished(() => own.stop());
  const session = openSession(own.grpcUrl);
  const second = openSession(own.grpcUrl);
  const watch = (on: http2.ClientHttp2Session) => {
    const stream = openCall(on, "/grpc.health.v1.Health/Watch");
    stream.end(enveloped(Buffer.alloc(0)));
    return stream;
  };
  const watching = Array.from({ length: 100 }, () => [watch(session), watch(second)]).flat();
  await Promise.all(watching.map((stream) => once(stream, "response")));
  // A refusal without a message has its status among the headers.
  const [headers] = await once(watch(session), "response");
  expect([headers["grpc-status"], headers["grpc-message"]]).toEqual([
    "8",
    expect.stringContaining("200 calls"),
  ]);
  (watching[0] as http2.ClientHttp2Stream).close();
  await expect
    .poll(async () => {
      const check = openCall(session, CHECK);
      check.end(enveloped(Buffer.alloc(0)));
      const [answered] = await once(check, "response");
      return answered["grpc-status"] ?? (await once(check, "trailers"))[0]["grpc-status"];
    })
    .toBe("0");
});

describe("connections", () => {
  /** Opens so many connections and counts those that stay open once the last has been accepted or refused. */
  async function stayOpen(port: number, count: number): Promise<number> {
    const sockets: Socket[] = [];
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
    });
    for (let n = 0; n < count; n += 1) {
      const socket = openSocket(port, "127.0.0.1");
      socket.on("error", () => {}).resume();
      sockets.push(socket);
      await once(socket, "connect");
    }
    const open = () => sockets.filter((socket) => !socket.closed && !socket.readableEnded).length;
    let last = -1;
    await expect
      .poll(
        () => {
          const settled = open() === last;
          last = open();
          return settled;
        },
        { interval: 200 },
      )
      .toBe(true);
    return open();
  }

  test("of one address are limited on each listener, and those that are open stay", async () => {
    const own = await startTestApi({ limits: { maxConnectionsPerAddress: 5 } });
    onTestFinished(() => own.stop());
    expect(await stayOpen(own.httpPort, 20)).toBe(5);
    expect(await stayOpen(own.grpcPort as number, 20)).toBe(5);
  });

  test("are refused with the client's IPv4 address in the log, also on a socket for both families", async () => {
    const { host } = readConfig({});
    const lines: { msg: string; address?: string }[] = [];
    const log = pino({ level: "warn" }, { write: (line) => void lines.push(JSON.parse(line)) });
    const own = await startTestApi({ host, log, limits: { maxConnectionsPerAddress: 1 } });
    onTestFinished(() => own.stop());
    expect(await stayOpen(own.httpPort, 2)).toBe(1);
    const [refused] = lines.filter(({ msg }) => msg === "connections refused");
    expect(refused?.address).toBe("127.0.0.1");
  });

  test("that a client leaves idle make room for its next ones, and those in use stay", async () => {
    const own = await startTestApi({ limits: { maxConnectionsPerAddress: 5 } });
    onTestFinished(() => own.stop());
    const busy = openCall(openSession(own.grpcUrl), "/grpc.health.v1.Health/Watch");
    busy.end(enveloped(Buffer.alloc(0)));
    await once(busy, "response");
    const left: http2.ClientHttp2Session[] = [];
    for (let n = 0; n < 20; n += 1) {
      const session = openSession(own.grpcUrl);
      left.push(session);
      const check = openCall(session, CHECK);
      check.end(enveloped(Buffer.alloc(0)));
      expect((await once(check, "trailers"))[0]["grpc-status"]).toBe("0");
    }
    await expect.poll(() => left.filter((session) => !session.destroyed).length).toBe(4);
    expect(busy.closed).toBe(false);
  });

  test("of trusted proxies are not limited by address", async () => {
    const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8" }).limits;
    const own = await startTestApi({ limits: { maxConnectionsPerAddress: 5, trustedProxies } });
    onTestFinished(() => own.stop());
    expect(await stayOpen(own.httpPort, 20)).toBe(20);
  });

  test("are limited in total, whatever their address", async () => {
    const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8" }).limits;
    const own = await startTestApi({ limits: { maxConnections: 7, trustedProxies } });
    onTestFinished(() => own.stop());
    expect(await stayOpen(own.httpPort, 20)).toBe(7);
  });
});
