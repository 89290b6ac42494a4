import { create, toBinary } from "@bufbuild/protobuf";
import { Code, type ConnectError, createClient } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../../gen/google/rpc/error_details_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookProcessSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { SetWebhookRequestSettingsRequestSchema } from "../../../gen/webhook/v1/request_settings_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { toConnectError } from "../../../src/api/errors/errors.ts";
import { DomainError, ERROR_DOMAIN } from "../../../src/contract/errors.ts";
import { grpc, PROTOCOLS } from "../../support/clients.ts";
import { grpcTrailers, refused } from "../../support/grpc-calls.ts";
import { ONLY, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

/** The reason, after seeing to it that there is one and that it is ours. */
function reasonOf(error: ConnectError): string | undefined {
  const [info, ...more] = error.findDetails(ErrorInfoSchema);
  expect(more).toEqual([]);
  expect(info?.domain).toBe(ERROR_DOMAIN);
  return info?.reason;
}

const EVENT_TYPES = WebhookProcessSchema.values
  .slice(1)
  .map(({ name }) => name)
  .join(", ");

describe.each(PROTOCOLS)("over %s", (_name, transport) => {
  test("wrong fields are named one by one, for programs", async () => {
    const error = await refused(createClient(WebhookService, transport(api)).createWebhook({}));
    expect([error.code, reasonOf(error)]).toEqual([Code.InvalidArgument, "FIELDS_INVALID"]);
    const [bad] = error.findDetails(BadRequestSchema);
    expect(bad?.fieldViolations.map(({ field, description }) => [field, description])).toEqual([
      ["process", `is required and must not be 0; allowed: ${EVENT_TYPES}`],
      ["url", "is required and must not be empty"],
    ]);
  });

  test("an address that no webhook can have is a violation of the field url", async () => {
    const webhooks = createClient(WebhookService, transport(api));
    const error = await refused(webhooks.createWebhook({ process: 1, url: "https://127.0.0.1/hooks" }));
    expect(reasonOf(error)).toBe("URL_NOT_ALLOWED");
    const [violation] = error.findDetails(BadRequestSchema)[0]?.fieldViolations ?? [];
    expect(violation?.field).toBe("url");
    expect(error.rawMessage).toContain(violation?.description);
  });

  test("what is not there, and keys that may not, each have their reason", async () => {
    const missing = createClient(WebhookService, transport(api)).deleteWebhook({ webhookId: 4711n });
    expect(reasonOf(await refused(missing))).toBe("WEBHOOK_NOT_FOUND");
    const deliveries = createClient(DeliveryService, transport(api));
    const deliveryId = "01a1fcb1-a29f-764b-ae78-489c1b984865";
    expect(reasonOf(await refused(deliveries.getDelivery({ deliveryId })))).toBe("DELIVERY_NOT_FOUND");

    const unknown = createClient(WebhookService, transport(api, "unknown")).listWebhooks({});
    expect(reasonOf(await refused(unknown))).toBe("API_KEY_UNKNOWN");
    const { secret } = await api.key({ permissions: ONLY.publish });
    const may = await refused(createClient(WebhookService, transport(api, secret)).listWebhooks({}));
    expect(reasonOf(may)).toBe("PERMISSION_MISSING");
    expect(may.findDetails(ErrorInfoSchema)[0]?.metadata).toEqual({
      permission: "Read_Administrative_Data",
    });
  });
});

test.each(["x", "界"])(
  "over gRPC the trailers of an error with many long fields of %s stay below 8 KiB, and name the first fields",
  async (character) => {
    const headers = Array.from({ length: 40 }, () => ({ name: character.repeat(400) }));
    const request = { webhookId: await api.register(), settings: { headers } };
    const { trailers, bytes } = await grpcTrailers(
      api,
      "/webhook.v1.WebhookService/SetWebhookRequestSettings",
      toBinary(
        SetWebhookRequestSettingsRequestSchema,
        create(SetWebhookRequestSettingsRequestSchema, request),
      ),
    );
    expect(trailers["grpc-status"]).toBe(String(Code.InvalidArgument));
    expect(bytes).toBeLessThan(8_192);
    const error = await refused(createClient(WebhookService, grpc(api)).setWebhookRequestSettings(request));
    const named = error.findDetails(BadRequestSchema)[0]?.fieldViolations.map(({ field }) => field) ?? [];
    expect(named.slice(0, 3)).toEqual([
      "settings.headers",
      "settings.headers[0].name",
      "settings.headers[1].name",
    ]);
    expect(error.rawMessage).toMatch(/^settings\.headers must be at most .*…$/s);
  },
);

test("a limit that ends tells when, rounded up to whole seconds where a header tells it", () => {
  const error = toConnectError(
    new DomainError("RESOURCE_EXHAUSTED", "too many requests", { retryAfterMs: 1_200.4 }),
    pino({ level: "silent" }),
    "Test",
  );
  expect([error.code, reasonOf(error)]).toEqual([Code.ResourceExhausted, "RATE_LIMITED"]);
  expect(error.findDetails(RetryInfoSchema)[0]?.retryDelay).toMatchObject({
    seconds: 1n,
    nanos: 201_000_000,
  });
  expect(error.metadata.get("Retry-After")).toBe("2");
});

test("a fault of ours is told as a reference, which is among the metadata too", () => {
  const error = toConnectError(new Error("select secret from keys"), pino({ level: "silent" }), "Test");
  const [info] = error.findDetails(ErrorInfoSchema);
  expect([error.code, info?.reason]).toEqual([Code.Internal, "INTERNAL"]);
  expect(error.rawMessage).toBe(
    `internal error; reference in the service's log: ${info?.metadata.reference}`,
  );
});
