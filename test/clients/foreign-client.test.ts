import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import * as grpcJs from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { describe, expect, onTestFinished, test } from "vitest";
import { startTestApi, type TestApi, useApi } from "../support/test-api.ts";

// biome-ignore lint/suspicious/noExplicitAny: the loader knows the messages at run time only
type Message = any;

const root = fileURLToPath(new URL("../..", import.meta.url));
const files = ["webhook", "event", "delivery"].map((name) => `webhook/v1/${name}.proto`);
const dependencies = ["protobufjs", "grpc-health-check/proto"].map((name) => `${root}node_modules/${name}`);
const loaded = grpcJs.loadPackageDefinition(
  loadSync([...files, "health/v1/health.proto"], {
    includeDirs: [`${root}proto`, ...dependencies],
    defaults: true,
    longs: String,
    enums: String,
  }),
) as Message;
const { WebhookService, EventService, DeliveryService } = loaded.webhook.v1;
const { Health } = loaded.grpc.health.v1;

const api = await useApi();

/** A client of a service, until the test ends. */
function open(Service: Message, { grpcPort }: TestApi = api): Message {
  const client = new Service(`127.0.0.1:${grpcPort}`, grpcJs.credentials.createInsecure());
  onTestFinished(() => client.close());
  return client;
}

/** Calls a method, with the administrator's key unless another is given. */
function call(Service: Message, name: string, request: Message, key: string | null = api.adminKey) {
  const client = open(Service);
  const metadata = new grpcJs.Metadata();
  if (key !== null) metadata.set("x-service-key", key);
  return new Promise<Message>((resolve, reject) => {
    client[name](request, metadata, (error: unknown, answer: Message) =>
      error ? reject(error) : resolve(answer),
    );
  });
}

describe("a client of another make (@grpc/grpc-js)", () => {
  test("creates, lists and deletes webhooks", async () => {
    const url = "https://receiver.example/grpc-js";
    const process = "WEBHOOK_PROCESS_DOCUMENT_CREATED";
    const made = await call(WebhookService, "CreateWebhook", { process, url });
    expect(made).toMatchObject({
      created: true,
      webhook: { url, webhookProcess: process, apiKeyId: api.adminKeyId },
    });
    expect((await call(WebhookService, "CreateWebhook", { process: 2, url })).created).toBe(false);
    expect((await call(WebhookService, "ListWebhooks", {})).webhooks).toEqual([made.webhook]);
    const deleted = await call(WebhookService, "DeleteWebhook", { webhookId: made.webhook.id });
    expect(deleted.webhook.id).toBe(made.webhook.id);
    expect((await call(WebhookService, "ListWebhooks", {})).webhooks).toEqual([]);
  });

  test("publishes an event, and a second time as a duplicate", async () => {
    await api.register();
    const request = {
      idempotencyKey: randomUUID(),
      userId: "u",
      orderDispatched: {
        orderId: "9007199254740993",
        orderNumber: "SO-1",
        dispatchedAt: { seconds: 1 },
        lines: [{ productId: 1, sku: "A", quantity: 2 }],
      },
    };
    const first = await call(EventService, "PublishEvent", request);
    expect(first).toMatchObject({ deliveriesQueued: 1 });
    const again = await call(EventService, "PublishEvent", request);
    expect(again).toMatchObject({ eventId: first.eventId, duplicate: true });
    await expect(call(EventService, "PublishEvent", { ...request, userId: "v" })).rejects.toMatchObject({
      code: grpcJs.status.ALREADY_EXISTS,
    });
    const { deliveries } = await call(DeliveryService, "ListDeliveries", { eventId: first.eventId });
    expect(deliveries).toHaveLength(1);
  });

  test.each<[what: string, method: string, request: object, key: string | null | undefined, code: string]>([
    ["no key", "ListWebhooks", {}, null, "UNAUTHENTICATED"],
    ["an unknown key", "ListWebhooks", {}, "unknown", "UNAUTHENTICATED"],
    [
      "a wrong URL",
      "CreateWebhook",
      { process: 1, url: "http://plain.example" },
      undefined,
      "INVALID_ARGUMENT",
    ],
    ["no webhook", "DeleteWebhook", { webhookId: 4711 }, undefined, "NOT_FOUND"],
  ])("is told errors by their codes: %s", async (_what, method, request, key, code) => {
    await expect(call(WebhookService, method, request, key)).rejects.toMatchObject({
      code: grpcJs.status[code as "NOT_FOUND"],
    });
  });

  test("asks for health without a key, of all and of each service", async () => {
    for (const service of ["", "webhook.v1.WebhookService", "webhook.v1.EventService"])
      expect(await call(Health, "Check", { service }, null)).toEqual({ status: "SERVING" });
    await expect(call(Health, "Check", { service: "nope" }, null)).rejects.toMatchObject({
      code: grpcJs.status.NOT_FOUND,
    });
  });

  test("watches health as it changes, until it goes; that of a service that there is not is SERVICE_UNKNOWN", async () => {
    const reasons: string[] = [];
    const own = await startTestApi({ readiness: async () => reasons });
    onTestFinished(() => own.stop());
    const seen: string[] = [];
    const stream = open(Health, own).Watch({ service: "webhook.v1.EventService" });
    const ended = new Promise<grpcJs.StatusObject>((resolve) => stream.on("error", resolve));
    stream.on("data", ({ status }: { status: string }) => seen.push(status));
    await expect.poll(() => seen).toEqual(["SERVING"]);
    reasons.push("Temporal is away");
    await expect.poll(() => seen).toEqual(["SERVING", "NOT_SERVING"]);
    reasons.pop();
    await expect.poll(() => seen).toEqual(["SERVING", "NOT_SERVING", "SERVING"]);
    stream.cancel();
    expect((await ended).code).toBe(grpcJs.status.CANCELLED);

    const unknown = open(Health, own).Watch({ service: "nope" });
    unknown.on("error", () => {});
    const status = await new Promise((resolve) => unknown.on("data", resolve));
    expect(status).toEqual({ status: "SERVICE_UNKNOWN" });
    unknown.cancel();
  });
});
