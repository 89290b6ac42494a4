import { once } from "node:events";
import * as http2 from "node:http2";
import { Code, createClient } from "@connectrpc/connect";
import type { ServiceError } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { grpc, PROTOCOLS } from "../../support/clients.ts";
import { foreignClient, reasonOf, refused } from "../../support/grpc-calls.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

/** What a gRPC call ends with, as it is on the wire. */
async function grpcTrailers(method: string, message: Uint8Array): Promise<http2.IncomingHttpHeaders> {
  const session = http2.connect(api.grpcUrl);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": method,
    "content-type": "application/grpc+proto",
    te: "trailers",
    "x-service-key": api.adminKey,
  });
  stream.end(Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]));
  const [trailers] = await once(stream.resume(), "trailers");
  return trailers;
}

describe.each(PROTOCOLS)("over %s", (_name, transport) => {
  test.each([64 * 1024 + 1, 4 * 1024 * 1024 + 1])(
    "a message of %i bytes is RESOURCE_EXHAUSTED, and the error names the limit",
    async (bytes) => {
      const url = "x".repeat(bytes);
      const error = await refused(
        createClient(WebhookService, transport(api)).createWebhook({ process: 1, url }),
      );
      expect([error.code, reasonOf(error), error.rawMessage]).toEqual([
        Code.ResourceExhausted,
        "MESSAGE_TOO_LARGE",
        "a message of this method may have at most 65536 bytes, uncompressed; send less at once",
      ]);
    },
  );
});

test("messages come whole to clients of any make, whatever characters they have", async () => {
  const client = foreignClient(api);
  onTestFinished(client.close);
  const url = "ftp://receiver.example/?a=1&b=%2F";
  const error = await client
    .call("CreateWebhook", { process: 1, url })
    .catch((reason: ServiceError) => reason);
  expect((error as ServiceError).details).toBe("url begins with ftp://; only https:// is allowed");
  const other = await client
    .call("CreateWebhook", { process: 4711, url })
    .catch((reason: ServiceError) => reason);
  const same = await refused(
    createClient(WebhookService, grpc(api)).createWebhook({ process: 4711 as 1, url }),
  );
  expect((other as ServiceError).details).toBe(same.rawMessage);
  const health = grpcTrailers("/grpc.health.v1.Health/Check", Buffer.from("\n\u0007ä 50%;"));
  expect((await health)["grpc-message"]).toBe('there is no service "%C3%A4 50%25;"');
});

test("refusals before a service is asked have reasons as well, in every protocol", async () => {
  const post = async (type: string, body: string | Uint8Array<ArrayBuffer>, more = {}) =>
    fetch(`${api.url}/webhook.v1.WebhookService/ListWebhooks`, {
      method: "POST",
      headers: { "X-Service-Key": api.adminKey, "Content-Type": type, ...more },
      body,
    });
  const unread = await post("application/json", "[");
  expect(unread.status).toBe(400);
  expect(await unread.json()).toMatchObject({
    code: "invalid_argument",
    details: [{ type: "google.rpc.ErrorInfo", debug: { reason: "REQUEST_INVALID" } }],
  });
  const packed = await post("application/json", "{}", { "Content-Encoding": "zstd" });
  expect(await packed.json()).toMatchObject({
    code: "invalid_argument",
    message: 'requests cannot be compressed as "zstd"; use gzip or br, or send them uncompressed',
    details: [{ debug: { reason: "REQUEST_INVALID" } }],
  });
  expect(packed.status).toBe(400);
  const broken = new Uint8Array([0, 0, 0, 0, 1, 0xff]);
  const web = await post("application/grpc-web+proto", broken);
  expect(await web.text()).toContain("grpc-status-details-bin");

  const trailers = await grpcTrailers("/webhook.v1.WebhookService/ListWebhooks", broken.subarray(5));
  expect(trailers["grpc-status"]).toBe("3");
  const details = Buffer.from(trailers["grpc-status-details-bin"] as string, "base64");
  expect(details.toString()).toContain("REQUEST_INVALID");
});

test.each([
  [
    "POST",
    "WebhookService/ListWebhooks",
    "application/x-www-form-urlencoded",
    415,
    "with Content-Type: application/json",
  ],
  ["POST", "WebhookService/CreateWebhook", "text/plain", 415, "with Content-Type: application/json"],
  [
    "GET",
    "WebhookService/ListWebhooks",
    undefined,
    415,
    "by GET with connect=v1, encoding=json and message={}",
  ],
  ["GET", "WebhookService/CreateWebhook", undefined, 405, "is called by POST"],
  ["PUT", "WebhookService/ListWebhooks", "application/json", 405, "is called by POST"],
  ["PROPFIND", "WebhookService/ListWebhooks", "application/json", 405, "is called by POST"],
  [
    "POST",
    "WebhookService/CreateWebhook",
    "application/json, a/b",
    415,
    "with Content-Type: application/json",
  ],
])("%s of %s as %s is told what to do instead", async (method, path, type, status, words) => {
  const answer = await fetch(`${api.url}/webhook.v1.${path}`, {
    method,
    headers: { "X-Service-Key": api.adminKey, ...(type ? { "Content-Type": type } : {}) },
    ...(method === "GET" ? {} : { body: "{}" }),
  });
  expect(answer.status).toBe(status);
  expect(answer.headers.get(status === 405 ? "Allow" : "Accept-Post")).toContain(
    status === 405 ? "POST" : "json",
  );
  expect(await answer.json()).toMatchObject({
    code: "unimplemented",
    message: expect.stringContaining(words),
    details: [{ debug: { reason: "METHOD_NOT_SERVED" } }],
  });
});

test("a stream both ways over HTTP/1.1 is told that it needs HTTP/2", async () => {
  const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  const headers = { "Content-Type": "application/connect+json" };
  const answer = await fetch(`${api.url}${path}`, { method: "POST", headers, body: "{}" });
  expect([answer.status, await answer.json()]).toMatchObject([
    426,
    { message: "ServerReflectionInfo streams both ways, which HTTP/1.1 cannot: call it over HTTP/2" },
  ]);
});
