import diagnostics from "node:diagnostics_channel";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import * as http2 from "node:http2";
import { connect as connectTls } from "node:tls";
import { create, toBinary } from "@bufbuild/protobuf";
import { Code, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import pino from "pino";
import { Agent, type Dispatcher } from "undici";
import { afterAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { ServerReflectionRequestSchema } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { PublishEventsRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { Admissions } from "../../../src/keys/gate/admissions.ts";
import { lock, orderEvent, refused, waitingQueries } from "../../support/grpc-calls.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { startTestApi } from "../../support/test-api.ts";

interface Line {
  level: number;
  method?: string;
  code?: string;
}

let lines: Line[] = [];
const authority = await createLocalAuthority();
const ca = authority.cert;
const api = await startTestApi({
  tls: await authority.issue(["localhost"]),
  log: pino({ level: "debug" }, { write: (line) => void lines.push(JSON.parse(line)) }),
});
afterAll(() => api.stop());
beforeEach(() => {
  lines = [];
});

const warnings = () => lines.filter(({ level }) => level >= 40);

const key = { "X-Service-Key": api.adminKey };
const HEAD = `Host: a\r\nX-Service-Key: ${api.adminKey}`;
const nodeOptions = { ca };
const options = { baseUrl: api.url, nodeOptions };
const openTls = () => connectTls({ port: api.httpPort, host: "127.0.0.1", servername: "localhost", ca });
const PROTOCOLS: [string, Transport][] = [
  ["gRPC", createGrpcTransport(options)],
  ["gRPC-Web", createGrpcWebTransport({ ...options, httpVersion: "1.1" })],
  ["Connect", createConnectTransport({ ...options, httpVersion: "1.1" })],
];

test.each(PROTOCOLS)(
  "a caller over %s that disconnects ends what the call was asking of the database",
  async (_name, transport) => {
    onTestFinished(await lock(api, "webhooks"));
    const gone = new AbortController();
    const webhooks = createClient(WebhookService, transport);
    const call = refused(webhooks.listWebhooks({}, { headers: key, signal: gone.signal }));
    await expect.poll(() => waitingQueries(api)).toBe(1);
    gone.abort();
    expect((await call).code).toBe(Code.Canceled);
    await expect.poll(() => waitingQueries(api)).toBe(0);
  },
);

describe("a stream whose client disconnects is not logged as an error:", () => {
  const PUBLISH = "/webhook.v1.EventService/PublishEvents";
  const REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

  /** Fails unless the log says that the call was canceled, and nothing worse. */
  async function expectCanceled(path = PUBLISH): Promise<void> {
    const ended = () => lines.find(({ method }) => method && path.endsWith(method))?.code;
    await expect.poll(ended).toBe("Canceled");
    expect(warnings()).toEqual([]);
  }

  /** A message of PublishEvents with one event. */
  function oneEvent() {
    const event = orderEvent();
    const message = create(PublishEventsRequestSchema, { events: [event] });
    const stored = () => api.context.db("events").where("idempotency_key", event.idempotencyKey);
    return {
      bytes: enveloped(toBinary(PublishEventsRequestSchema, message)),
      isStored: () => expect.poll(stored).toHaveLength(1),
    };
  }

  /** Opens a session, starts a call over gRPC on it, and sends a message. */
  function openStream(path: string, message: Buffer) {
    const session = http2.connect(api.url, { ca });
    const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" };
    const stream = session.request({ ...headers, ...key }).on("error", () => {});
    stream.write(message);
    return { session, stream };
  }

  test("a client of reflection, between two questions", async () => {
    const messageRequest = { case: "listServices" as const, value: "" };
    const question = create(ServerReflectionRequestSchema, { messageRequest });
    const asked = enveloped(toBinary(ServerReflectionRequestSchema, question));
    const { session, stream } = openStream(REFLECTION, asked);
    await once(stream, "data");
    session.destroy();
    await expectCanceled(REFLECTION);
  });

  test("a publisher over gRPC", async () => {
    const { bytes, isStored } = oneEvent();
    const { session } = openStream(PUBLISH, bytes);
    await isStored();
    session.destroy();
    await expectCanceled();
  });

  test("a publisher by Connect over HTTP/1.1", async () => {
    const { bytes, isStored } = oneEvent();
    const socket = openTls();
    const chunk = `Transfer-Encoding: chunked\r\n\r\n${bytes.length.toString(16)}\r\n`;
    socket.write(
      `POST ${PUBLISH} HTTP/1.1\r\n${HEAD}\r\nContent-Type: application/connect+proto\r\n${chunk}`,
    );
    socket.write(Buffer.concat([bytes, Buffer.from("\r\n")]));
    await isStored();
    socket.destroy();
    await expectCanceled();
  });
});

const OPERATIONS = [
  ["GET", "/api/webhook/list"],
  ["POST", "/api/webhook?process=1&url=https%3A%2F%2Freceiver.example%2Fgone"],
  ["DELETE", "/api/webhook?webhookId=1"],
] as const;

describe.each([
  ["HTTP/1.1", false],
  ["HTTP/2", true],
])("a REST caller over %s that disconnects", (_name, allowH2) => {
  const agent = new Agent({ connect: { ca }, allowH2 });
  afterAll(() => agent.destroy());

  const call = (method: Dispatcher.HttpMethod, path: string, signal?: AbortSignal) =>
    agent.request({ origin: api.url, method, path, headers: key, signal: signal ?? null });

  /** Makes a call that waits for a table, and goes away. */
  async function goAway(
    table: string,
    method: Dispatcher.HttpMethod,
    path: string,
  ): Promise<() => Promise<void>> {
    const release = await lock(api, table);
    onTestFinished(release);
    const gone = new AbortController();
    const answer = call(method, path, gone.signal).catch(({ name }: Error) => name);
    await expect.poll(() => waitingQueries(api)).toBe(1);
    gone.abort();
    expect(await answer).toBe("AbortError");
    return release;
  }

  /** What a caller finds who stayed: nothing has changed, and no connection is held. */
  async function expectUnchanged(): Promise<void> {
    const { body } = await call("GET", "/api/webhook/list");
    expect(await body.json()).toEqual({ Success: true, Data: [], Warnings: [] });
    await expect.poll(() => api.context.db.client.pool.numUsed()).toBe(0);
    expect(warnings()).toEqual([]);
  }

  test.each(OPERATIONS)(
    "ends what %s %s was asking of the database, and changes nothing",
    async (method, path) => {
      const release = await goAway("webhooks", method, path);
      await expect.poll(() => waitingQueries(api)).toBe(0);
      await release();
      await expectUnchanged();
    },
  );

  test("while the key is looked up makes no call, and is not kept in memory", async () => {
    const enter = vi.spyOn(Admissions.prototype, "enter");
    onTestFinished(() => enter.mockRestore());
    const closed = closedResponse();
    const release = await goAway("api_keys", ...OPERATIONS[1]);
    await closed;
    await release();
    await expectUnchanged();
    const isKept = ({ value }: { value: unknown }, n: number) =>
      (enter.mock.contexts[n] as Admissions).find(String(value)) !== undefined;
    const kept = () => enter.mock.results.filter(isKept).length;
    await expect.poll(kept).toBe(0);
  });
});

/** Resolves when the service has seen that the caller of its next request is gone. */
function closedResponse(): Promise<void> {
  const channels = ["http.server.request.start", "http2.server.stream.start"];
  return new Promise((resolve) => {
    const started = (message: unknown) => {
      for (const channel of channels) diagnostics.unsubscribe(channel, started);
      const { response, stream } = message as { response: ServerResponse; stream: http2.ServerHttp2Stream };
      (stream ?? response).once("close", resolve);
    };
    for (const channel of channels) diagnostics.subscribe(channel, started);
  });
}

test("a REST caller that disconnects before the body has arrived is not logged as a database failure", async () => {
  const socket = openTls();
  await once(socket, "secureConnect");
  const head = "Content-Type: application/json\r\nContent-Length: 100";
  socket.end(`POST /api/webhook HTTP/1.1\r\n${HEAD}\r\n${head}\r\n\r\n{`);
  await once(socket.resume(), "close");
  // What the call still does needs the database; a later call of the same kind comes after it.
  const agent = new Agent({ connect: { ca } });
  onTestFinished(() => agent.destroy());
  const headers = { ...key, "content-type": "application/json" };
  const request = { method: "POST" as const, path: "/api/webhook", headers, body: "{" };
  const later = await agent.request({ origin: api.url, ...request });
  expect(later.statusCode).toBe(400);
  await expect.poll(() => api.context.db.client.pool.numUsed()).toBe(0);
  expect(warnings()).toEqual([]);
});
