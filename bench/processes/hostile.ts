import * as http2 from "node:http2";
import { connect, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { BOMBS, emptyItems, enveloped, unknownFields } from "../../test/support/hostile-messages.ts";
import { serveCalls } from "../parts/child.ts";

/** An attack over some connections at once. */
export interface HostileCalls {
  kind: keyof typeof KINDS;
  httpPort: number;
  grpcPort: number;
  /** The connections take them in turn; none for calls without a key. */
  keys: readonly string[];
  connections: number;
  seconds: number;
}

const MIB = 1_048_576;
const HOST = "127.0.0.1";
/** The limits of an address do not concern other callers. */
const ATTACKER = "127.0.0.2";
const BATCH = "/webhook.v1.EventService/PublishEventBatch";
const CREATE = "/webhook.v1.WebhookService/CreateWebhook";
const LIST = "/webhook.v1.DeliveryService/ListDeliveries";
const STREAM = "/webhook.v1.EventService/PublishEvents";
const REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const PROTO = "application/proto";
const JSON_TYPE = "application/json";
/** As large as a message may be. */
const LARGE = 4 * MIB;

const ELEMENTS: [path: string, type: string, body: Buffer][] = [
  [BATCH, PROTO, emptyItems(2 * MIB)],
  [BATCH, JSON_TYPE, Buffer.from(`{"events":[${"{},".repeat(MIB)}{}]}`)],
  [BATCH, PROTO, unknownFields(LARGE)],
  [LIST, JSON_TYPE, Buffer.from(`{"webhookId":"${"1".repeat(LARGE - 100)}"}`)],
  ["/api/webhook", JSON_TYPE, Buffer.from(`[${"{},".repeat(MIB)}{}]`)],
];

/** One connection of an attack. */
interface Attacker {
  n: number;
  httpPort: number;
  grpcPort: number;
  key: string | undefined;
  signal: AbortSignal;
}

const headersOf = ({ key }: Attacker): Record<string, string> => (key ? { "x-service-key": key } : {});

function head(
  attacker: Attacker,
  path: string,
  type: string,
  length: number,
  more: Record<string, string> = {},
) {
  const headers = {
    host: "x",
    "content-type": type,
    "content-length": String(length),
    ...headersOf(attacker),
    ...more,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** Opens connections, one after the other. @param use resolves when another one is wanted */
async function again<T extends Socket | http2.ClientHttp2Session>(
  signal: AbortSignal,
  open: () => T,
  use: (connection: T) => Promise<void>,
): Promise<void> {
  while (!signal.aborted) {
    const connection = open();
    const closed = new Promise<void>((resolve) => {
      connection.on("error", () => {});
      connection.on("close", () => resolve());
    });
    const stop = () => void connection.destroy();
    signal.addEventListener("abort", stop);
    await Promise.race([use(connection), closed]);
    connection.destroy();
    signal.removeEventListener("abort", stop);
    await wait(10);
  }
}

const connectTo = (port: number) => connect({ port, host: HOST, localAddress: ATTACKER });

const overTcp = ({ signal, httpPort }: Attacker, use: (socket: Socket) => Promise<void>) =>
  again(signal, () => connectTo(httpPort), use);

const overHttp2 = (
  { signal, grpcPort }: Attacker,
  use: (session: http2.ClientHttp2Session) => Promise<void>,
  settings: http2.Settings = {},
) => {
  const createConnection = () => connectTo(grpcPort);
  return again(
    signal,
    () => http2.connect(`http://${HOST}:${grpcPort}`, { settings, createConnection }),
    use,
  );
};

const until = (socket: Socket) => new Promise<void>((resolve) => socket.once("data", () => resolve()));

/** Posts again and again, each time when the response to the last one comes. */
const posting =
  (bodies: [path: string, type: string, body: Buffer, more?: Record<string, string>][]) =>
  (attacker: Attacker) => {
    let sent = attacker.n;
    return overTcp(attacker, async (socket) => {
      for (;;) {
        const [path, type, body, more] = bodies[sent % bodies.length] as (typeof bodies)[number];
        sent += 1;
        socket.write(head(attacker, path, type, body.length, more));
        socket.write(body);
        await until(socket);
        if (socket.destroyed) return;
      }
    });
  };

/** Sends most of a body at once, and the rest a byte at a time, or not at all. */
const slowly = (length: number, first: number, everyMs: number) => (attacker: Attacker) => {
  const paths: [string, string][] = [
    [BATCH, PROTO],
    [CREATE, JSON_TYPE],
    ["/api/webhook", JSON_TYPE],
  ];
  return overTcp(attacker, async (socket) => {
    socket.resume();
    const [path, type] = paths[attacker.n % paths.length] as [string, string];
    socket.write(head(attacker, path, type, length));
    socket.write(Buffer.alloc(first, " "));
    while (!socket.destroyed) {
      await wait(everyMs);
      socket.write(" ");
    }
  });
};

function call(
  session: http2.ClientHttp2Session,
  attacker: Attacker,
  path: string,
  more: Record<string, string> = {},
) {
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc+proto",
    te: "trailers",
    ...headersOf(attacker),
    ...more,
  });
  stream.on("error", () => {});
  return stream;
}

const ended = (stream: http2.ClientHttp2Stream) =>
  new Promise<void>((resolve) => stream.on("close", () => resolve()).resume());

const grpcPosting =
  (messages: [path: string, message: Buffer, more?: Record<string, string>][]) => (attacker: Attacker) =>
    overHttp2(attacker, async (session) => {
      for (let sent = attacker.n; !session.destroyed; sent += 1) {
        const [path, message, more] = messages[sent % messages.length] as (typeof messages)[number];
        const stream = call(session, attacker, path, more);
        stream.end(message);
        await ended(stream);
      }
    });

const either =
  (one: (attacker: Attacker) => Promise<void>, other: (attacker: Attacker) => Promise<void>) =>
  (attacker: Attacker) =>
    attacker.n % 2 === 0 ? one(attacker) : other(attacker);

const br = BOMBS.br as Buffer;
const gzip = BOMBS.gzip as Buffer;

const KINDS = {
  "slow bodies": either(slowly(60_000, 1_000, 1_000), (attacker) =>
    overHttp2(attacker, async (session) => {
      const streams = Array.from({ length: 20 }, () => call(session, attacker, CREATE));
      for (const stream of streams) stream.resume().write(Buffer.alloc(1_000));
      while (!session.destroyed) {
        await wait(1_000);
        for (const stream of streams) if (stream.writable) stream.write(" ");
      }
    }),
  ),
  "held messages": either(slowly(LARGE - 10, LARGE - 1_000, 1_000), (attacker) =>
    overHttp2(attacker, async (session) => {
      const streams = Array.from({ length: 4 }, () => call(session, attacker, BATCH));
      const message = enveloped(Buffer.alloc(LARGE - 100));
      for (const stream of streams) stream.resume().write(message.subarray(0, -10));
      await Promise.all(streams.map(ended));
    }),
  ),
  "unread responses": either(
    (attacker) =>
      overTcp(attacker, async (socket) => {
        socket.pause();
        const list = Buffer.from('{"pageSize":1000}');
        const get = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n";
        const post = head(attacker, LIST, JSON_TYPE, list.length) + list.toString();
        socket.write((attacker.n % 4 === 0 ? get : post).repeat(200));
        await wait(5_000);
      }),
    (attacker) =>
      overHttp2(
        attacker,
        async (session) => {
          for (let n = 0; n < 50; n += 1)
            call(session, attacker, LIST).end(enveloped(Buffer.from([0x08, 0x01])));
          await wait(5_000);
        },
        { initialWindowSize: 0 },
      ),
  ),
  compressed: either(
    posting([
      [BATCH, PROTO, br, { "content-encoding": "br" }],
      [BATCH, PROTO, gzip, { "content-encoding": "gzip" }],
    ]),
    grpcPosting([
      [BATCH, enveloped(br, 1), { "grpc-encoding": "br" }],
      [BATCH, enveloped(gzip, 1), { "grpc-encoding": "gzip" }],
    ]),
  ),
  elements: either(
    posting(ELEMENTS),
    grpcPosting([
      [BATCH, enveloped(emptyItems(2 * MIB))],
      [BATCH, enveloped(unknownFields(LARGE))],
      [STREAM, enveloped(emptyItems(2 * MIB))],
    ]),
  ),
  streams: (attacker: Attacker) =>
    overHttp2(attacker, async (session) => {
      const paths = [STREAM, REFLECTION, "/webhook.v1.StatsService/WatchOverview"];
      const streams = Array.from({ length: 100 }, (_, n) => call(session, attacker, paths[n % 3] as string));
      await Promise.all(streams.map(ended));
    }),
  resets: (attacker: Attacker) =>
    overHttp2(attacker, async (session) => {
      while (!session.destroyed) {
        for (let n = 0; n < 50; n += 1) call(session, attacker, CREATE).close(http2.constants.NGHTTP2_CANCEL);
        await wait(1);
      }
    }),
  "small messages": either(
    posting([
      [CREATE, JSON_TYPE, Buffer.from("{}")],
      ["/api/webhook", JSON_TYPE, Buffer.from("{")],
      ["/api/webhooks", JSON_TYPE, Buffer.from("{}")],
      [CREATE, "text/plain", Buffer.from("{}")],
    ]),
    grpcPosting([
      [CREATE, enveloped(Buffer.from([0x08]))],
      ["/webhook.v1.WebhookService/Nothing", enveloped(Buffer.alloc(0))],
    ]),
  ),
} satisfies Record<string, (attacker: Attacker) => Promise<void>>;

/** The kinds of attacks. */
export const HOSTILE_KINDS = Object.keys(KINDS) as (keyof typeof KINDS)[];

const methods = {
  /** Attacks for a time. */
  async attack({ kind, keys, connections, seconds, ...ports }: HostileCalls): Promise<void> {
    const end = new AbortController();
    const attackers = Array.from({ length: connections }, (_, n) =>
      KINDS[kind]({
        n,
        key: keys.length === 0 ? undefined : keys[n % keys.length],
        signal: end.signal,
        ...ports,
      }).catch(() => {}),
    );
    await wait(seconds * 1_000);
    end.abort();
    await Promise.race([Promise.all(attackers), wait(2_000)]);
  },
};

export type HostileMethods = typeof methods;

if (import.meta.main) serveCalls(methods);
