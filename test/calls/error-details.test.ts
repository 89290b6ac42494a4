import { create, toBinary } from "@bufbuild/protobuf";
import { Code, createClient } from "@connectrpc/connect";
import type { ServiceError } from "@grpc/grpc-js";
import pino from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { DeliveryService } from "../../gen/webhook/v1/delivery_pb.ts";
import { WebhookProcessSchema } from "../../gen/webhook/v1/event_pb.ts";
import { SetWebhookRequestSettingsRequestSchema } from "../../gen/webhook/v1/request_settings_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { toConnectError } from "../../src/calls/errors/errors.ts";
import { DomainError, ERROR_DOMAIN } from "../../src/contract/errors.ts";
import { PROTOCOLS } from "../support/clients.ts";
import { foreignClient, grpcTrailers, reasonOf, refused } from "../support/grpc-calls.ts";
import { enveloped } from "../support/hostile-messages.ts";
import { ONLY, useApi } from "../support/test-api.ts";
import { callGrpc, callHttp } from "../support/wire.ts";

const api = await useApi();

const EVENT_TYPES = WebhookProcessSchema.values
  .slice(1)
  .map(({ name }) => name)
  .join(", ");

describe.each(PROTOCOLS)("over %s", (_name, transport) => {
  const webhooks = createClient(WebhookService, transport(api));

  test("wrong fields are named one by one, for programs", async () => {
    const error = await refused(webhooks.createWebhook({}));
    expect([error.code, reasonOf(error), error.rawMessage]).toEqual([
      Code.InvalidArgument,
      "FIELDS_INVALID",
      `process is required and must not be 0; allowed: ${EVENT_TYPES}; url is required and must not be empty`,
    ]);
    expect(error.findDetails(BadRequestSchema)[0]?.fieldViolations).toMatchObject([
      { field: "process", description: `is required and must not be 0; allowed: ${EVENT_TYPES}` },
      { field: "url", description: "is required and must not be empty" },
    ]);
  });

  test("an address that no webhook can have is a violation of the field url", async () => {
    const error = await refused(webhooks.createWebhook({ process: 1, url: "https://127.0.0.1/hooks" }));
    expect(reasonOf(error)).toBe("URL_NOT_ALLOWED");
    expect(error.findDetails(BadRequestSchema)).toMatchObject([{ fieldViolations: [{ field: "url" }] }]);
  });

  test("what is not there, and keys that may not, each have their code, reason and words", async () => {
    const missing = await refused(webhooks.deleteWebhook({ webhookId: 4711n }));
    expect([missing.code, reasonOf(missing), missing.rawMessage]).toEqual([
      Code.NotFound,
      "WEBHOOK_NOT_FOUND",
      "there is no webhook 4711; list the webhooks to find its Id",
    ]);
    const deliveryId = "01a1fcb1-a29f-764b-ae78-489c1b984865";
    const delivery = createClient(DeliveryService, transport(api)).getDelivery({ deliveryId });
    expect(reasonOf(await refused(delivery))).toBe("DELIVERY_NOT_FOUND");

    const listBy = (key: string) =>
      refused(createClient(WebhookService, transport(api, key)).listWebhooks({}));
    const unknown = await listBy("unknown");
    expect([unknown.code, reasonOf(unknown)]).toEqual([Code.Unauthenticated, "API_KEY_UNKNOWN"]);
    const may = await listBy((await api.key({ permissions: ONLY.publish })).secret);
    expect(reasonOf(may)).toBe("PERMISSION_MISSING");
    const metadata = { permission: "Read_Administrative_Data" };
    expect(may.findDetails(ErrorInfoSchema)).toMatchObject([{ domain: ERROR_DOMAIN, metadata }]);
  });
});

test("messages come whole to clients of any make, whatever characters they have", async () => {
  const client = foreignClient(api);
  onTestFinished(client.close);
  const detailsOf = (process: number, url: string) =>
    client.call("CreateWebhook", { process, url }).catch(({ details }: ServiceError) => details);
  const url = "ftp://receiver.example/?a=1&b=%2F";
  expect(await detailsOf(1, url)).toBe("url begins with ftp://; only https:// is allowed");
  const same = await refused(api.client(WebhookService).createWebhook({ process: 4711 as 1, url }));
  expect(await detailsOf(4711, url)).toBe(same.rawMessage);
  const body = enveloped(Buffer.from("\n\u0007ä 50%;"));
  const message = 'there is no service "%C3%A4 50%25;"';
  expect(await callGrpc(api, "/grpc.health.v1.Health/Check", { body })).toMatchObject({ message });
});

test.each(["x", "界"])(
  "over gRPC the trailers of an error with many long fields of %s stay below 8 KiB, and name the first fields",
  async (character) => {
    const headers = Array.from({ length: 40 }, () => ({ name: character.repeat(400) }));
    const request = { webhookId: await api.register(), settings: { headers } };
    const message = create(SetWebhookRequestSettingsRequestSchema, request);
    const body = toBinary(SetWebhookRequestSettingsRequestSchema, message);
    const path = "/webhook.v1.WebhookService/SetWebhookRequestSettings";
    const { trailers, bytes } = await grpcTrailers(api, path, body);
    expect(trailers["grpc-status"]).toBe(String(Code.InvalidArgument));
    expect(bytes).toBeLessThan(8_192);
    const error = await refused(api.client(WebhookService).setWebhookRequestSettings(request));
    const [bad] = error.findDetails(BadRequestSchema);
    const first = ["settings.headers", "settings.headers[0].name", "settings.headers[1].name"];
    expect(bad?.fieldViolations.slice(0, 3).map(({ field }) => field)).toEqual(first);
    expect(error.rawMessage).toMatch(/^settings\.headers must be at most .*…$/s);
  },
);

test("a limit that ends tells when, rounded up to whole seconds where a header tells it", () => {
  const error = toConnectError(
    new DomainError("RATE_LIMITED", "too many requests", { retryAfterMs: 1_200.4 }),
    pino({ level: "silent" }),
    "Test",
  );
  expect([error.code, reasonOf(error)]).toEqual([Code.ResourceExhausted, "RATE_LIMITED"]);
  const retryDelay = { seconds: 1n, nanos: 201_000_000 };
  expect(error.findDetails(RetryInfoSchema)).toMatchObject([{ retryDelay }]);
  expect(error.metadata.get("Retry-After")).toBe("2");
});

test("an internal error is answered with a reference, which the metadata also has", () => {
  const error = toConnectError(new Error("select secret from keys"), pino({ level: "silent" }), "Test");
  const [info] = error.findDetails(ErrorInfoSchema);
  expect([error.code, info?.reason, error.rawMessage]).toEqual([
    Code.Internal,
    "INTERNAL",
    `internal error; reference in the service's log: ${info?.metadata.reference}`,
  ]);
});

test("refusals before a service is asked have reasons as well, in every protocol", async () => {
  const reason = { details: [{ type: "google.rpc.ErrorInfo", debug: { reason: "REQUEST_INVALID" } }] };
  const LIST = "WebhookService/ListWebhooks";
  const unread = await callHttp(api, LIST, { body: "[" });
  expect(unread).toMatchObject({ status: 400, json: { code: "invalid_argument", ...reason } });
  const packed = await callHttp(api, LIST, { headers: { "Content-Encoding": "zstd" } });
  const message =
    'requests cannot be compressed as "zstd"; use one of gzip, br, deflate, or send them uncompressed';
  expect(packed).toMatchObject({ status: 400, json: { code: "invalid_argument", message, ...reason } });
  const body = new Uint8Array([0, 0, 0, 0, 1, 0xff]);
  const web = await callHttp(api, LIST, { type: "application/grpc-web+proto", body });
  expect(web.text).toContain("grpc-status-details-bin");
  const { status, trailers } = await callGrpc(api, LIST, { body });
  const details = Buffer.from(String(trailers["grpc-status-details-bin"]), "base64");
  expect([status, String(details)]).toEqual([3, expect.stringContaining("REQUEST_INVALID")]);
});

const FORM = "application/x-www-form-urlencoded";
const BY_JSON = "with Content-Type: application/json";
test.each([
  ["POST", "ListWebhooks", FORM, 415, BY_JSON],
  ["POST", "CreateWebhook", "text/plain", 415, BY_JSON],
  ["POST", "CreateWebhook", "application/json, a/b", 415, BY_JSON],
  ["POST", "CreateWebhook", null, 415, "cannot read a body without a Content-Type: send JSON by POST"],
  ["GET", "ListWebhooks", null, 415, "by GET with connect=v1, encoding=json and message={}"],
  ["GET", "CreateWebhook", null, 405, "is called by POST"],
  ["PUT", "ListWebhooks", "application/json", 405, "is called by POST"],
  ["PROPFIND", "ListWebhooks", "application/json", 405, "is called by POST"],
])("%s of %s as %s is told what to do instead", async (verb, method, type, status, words) => {
  const answer = await callHttp(api, `WebhookService/${method}`, { verb, type });
  const [name, value] = status === 405 ? ["Allow", "POST"] : ["Accept-Post", "json"];
  expect([answer.status, answer.headers.get(name)]).toEqual([status, expect.stringContaining(value)]);
  expect(answer.json).toMatchObject({
    code: "unimplemented",
    message: expect.stringContaining(words),
    details: [{ debug: { reason: "METHOD_NOT_SERVED" } }],
  });
});

test("a bidirectional stream over HTTP/1.1 gets an error that it needs HTTP/2", async () => {
  const type = "application/connect+json";
  const method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  expect(await callHttp(api, method, { type })).toMatchObject({
    status: 426,
    json: { message: "ServerReflectionInfo streams both ways, which HTTP/1.1 cannot: call it over HTTP/2" },
  });
});
