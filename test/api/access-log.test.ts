import { createClient } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, beforeEach, expect, test } from "vitest";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { connect } from "../support/clients.ts";
import { refused } from "../support/grpc-calls.ts";
import { startTestApi } from "../support/test-api.ts";
import { callHttp } from "../support/wire.ts";

let lines: string[] = [];
const log = pino({ level: "info", base: null }, { write: (line: string) => void lines.push(line) });
const api = await startTestApi({ log, accessLog: true });
afterAll(() => api.stop());
beforeEach(() => {
  lines = [];
});

const logged = () => lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "access");

test("each REST request is a line: method, path without query, status, time and the key's prefix", async () => {
  await api.rest("GET", "/api/webhook/list", { query: { token: "s3cret-in-a-query" } });
  const [path, key] = ["/api/webhook/list", api.adminKey.slice(0, 12)];
  const line = { method: "GET", path, status: 200, ms: expect.any(Number), key };
  await expect.poll(logged).toMatchObject([line]);
  expect(lines.join()).not.toContain("s3cret");
  expect(lines.join()).not.toContain(api.adminKey.slice(12));
});

test("calls by gRPC and Connect are lines with the method's path, gRPC with its status", async () => {
  await api.client(WebhookService).listWebhooks({});
  await refused(api.client(WebhookService).getWebhook({ webhookId: 404n }));
  await createClient(WebhookService, connect(api)).listWebhooks({});
  const list = "/webhook.v1.WebhookService/ListWebhooks";
  await expect
    .poll(() => logged().map(({ path, status, grpcStatus }) => [path, status, grpcStatus]))
    .toEqual([
      [list, 200, 0],
      ["/webhook.v1.WebhookService/GetWebhook", 200, 5],
      [list, 200, undefined],
    ]);
});

test("what is sent in place of a key, and keys in paths, are not logged", async () => {
  const request = (path: string, key: string | null = null) => callHttp(api, path, { verb: "GET", key });
  await request("/api/webhook/list");
  await request("/api/webhook/list", "hunter2");
  await request("/api/webhook/list", "chosen-by-a-person-and-long-enough");
  await request(`/${api.adminKey}/list`);
  await request(`/api/webhook/list%3Fkey%3D${api.adminKey}`);
  await request(`/my_${api.adminKey}`);
  await request("/whsec_ab%2Fcd%3D");
  await expect
    .poll(() => logged().map(({ path, key }) => [path, key]))
    .toEqual([
      ["/api/webhook/list", null],
      ["/api/webhook/list", "not a key"],
      ["/api/webhook/list", "chos"],
      ["/whk_…/list", null],
      ["/api/webhook/list%3Fkey%3Dwhk_…", null],
      ["/my_whk_…", null],
      ["/whsec_…", null],
    ]);
});

test("without the setting requests are not logged", async () => {
  const quiet = await startTestApi({ log });
  await quiet.rest("GET", "/api/webhook/list");
  await quiet.stop();
  expect(logged()).toEqual([]);
});
