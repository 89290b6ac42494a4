import diagnostics from "node:diagnostics_channel";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import { connect } from "node:net";
import pino from "pino";
import { Agent } from "undici";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { Admissions } from "../../../src/api/rest/admissions.ts";
import { lock, waitingQueries } from "../../support/grpc-calls.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

const URL_ASKED = "https://receiver.example/gone";
const operations = [
  ["GET", "/api/webhook/list"],
  ["POST", `/api/webhook?process=1&url=${encodeURIComponent(URL_ASKED)}`],
  ["DELETE", "/api/webhook?webhookId=1"],
] as const;

describe.each([
  ["HTTP/1.1", false],
  ["HTTP/2", true],
])("a REST caller over %s who goes away", (_name, allowH2) => {
  const logged: string[] = [];
  let api: TestApi;
  let dispatcher: Agent;
  beforeAll(async () => {
    const authority = await createLocalAuthority();
    const tls = await authority.issue(["localhost"]);
    const log = pino({ level: "warn" }, { write: (line) => void logged.push(line) });
    api = await startTestApi({ tls, log });
    dispatcher = new Agent({ connect: { ca: authority.cert }, allowH2 });
  });
  afterAll(async () => {
    await dispatcher.destroy();
    await api.stop();
  });

  const call = (method: "GET" | "POST" | "DELETE", path: string, signal?: AbortSignal) =>
    dispatcher.request({
      origin: api.url,
      method,
      path,
      headers: { "x-service-key": api.adminKey },
      signal: signal ?? null,
    });

  test.each(operations)("ends what %s %s was asking of the database", async (method, path) => {
    const release = await lock(api, "webhooks");
    onTestFinished(release);
    const gone = new AbortController();
    const answer = call(method, path, gone.signal).catch(({ name }: Error) => name);
    await expect.poll(() => waitingQueries(api)).toBe(1);
    gone.abort();
    expect(await answer).toBe("AbortError");
    await expect.poll(() => waitingQueries(api)).toBe(0);
  });

  test("while the key is looked up makes no call, and is not kept in memory", async () => {
    const enter = vi.spyOn(Admissions.prototype, "enter");
    const closed = closedResponse();
    const release = await lock(api, "api_keys");
    onTestFinished(async () => {
      enter.mockRestore();
      await release();
    });
    const gone = new AbortController();
    const answer = call(...operations[1], gone.signal).catch(({ name }: Error) => name);
    await expect.poll(() => waitingQueries(api)).toBe(1);
    gone.abort();
    expect(await answer).toBe("AbortError");
    await closed;
    await release();
    const { body } = await call("GET", "/api/webhook/list");
    expect(await body.json()).toEqual({ Success: true, Data: [], Warnings: [] });
    const isKept = ({ value }: { value: unknown }, n: number) =>
      (enter.mock.contexts[n] as Admissions).find(String(value)) !== undefined;
    const kept = () => enter.mock.results.filter(isKept).length;
    await expect.poll(kept).toBe(0);
  });

  test("has changed nothing, holds no connection, and is no error in the log", async () => {
    const { statusCode, body } = await call("GET", "/api/webhook/list");
    expect([statusCode, await body.json()]).toEqual([200, { Success: true, Data: [], Warnings: [] }]);
    await expect.poll(() => api.context.db.client.pool.numUsed()).toBe(0);
    expect(logged).toEqual([]);
  });
});

/** Resolves when the service has seen that the caller of its next request is gone. */
function closedResponse(): Promise<void> {
  const http1 = "http.server.request.start";
  const http2 = "http2.server.stream.start";
  return new Promise((resolve) => {
    const started = (message: unknown) => {
      diagnostics.unsubscribe(http1, started);
      diagnostics.unsubscribe(http2, started);
      const { response, stream } = message as { response: ServerResponse; stream: ServerHttp2Stream };
      (stream ?? response).once("close", resolve);
    };
    diagnostics.subscribe(http1, started);
    diagnostics.subscribe(http2, started);
  });
}

test("a REST caller who goes away before the body has arrived is no fault of the database, and not logged as one", async () => {
  const logged: string[] = [];
  const api = await startTestApi({
    log: pino({ level: "warn" }, { write: (line) => void logged.push(line) }),
  });
  const socket = connect(api.httpPort, "127.0.0.1");
  await once(socket, "connect");
  const head = [
    "Host: localhost",
    `X-Service-Key: ${api.adminKey}`,
    "Content-Type: application/json",
    "Content-Length: 100",
  ];
  socket.end(`POST /api/webhook HTTP/1.1\r\n${head.join("\r\n")}\r\n\r\n{`);
  await once(socket.resume(), "close");
  // What the call still does needs the database; a later call of the same kind comes after it.
  expect(
    (await api.rest("POST", "/api/webhook", { raw: { body: "{", type: "application/json" } })).status,
  ).toBe(400);
  await api.stop();
  expect(logged).toEqual([]);
});
