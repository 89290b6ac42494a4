import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import * as grpcJs from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestApi, type TestApi } from "../support/test-api.ts";

// biome-ignore lint/suspicious/noExplicitAny: the loader knows the messages at run time only
type Message = any;
type Call = (name: string, request: Message, key?: string | null) => Promise<Message>;

const root = fileURLToPath(new URL("../..", import.meta.url));
const loaded = grpcJs.loadPackageDefinition(
  loadSync(
    [
      "webhook/v1/webhook.proto",
      "webhook/v1/event.proto",
      "webhook/v1/api_key.proto",
      "webhook/v1/delivery.proto",
      "health/v1/health.proto",
    ],
    {
      includeDirs: [
        `${root}proto`,
        `${root}node_modules/protobufjs`,
        `${root}node_modules/grpc-health-check/proto`,
      ],
      defaults: true,
      longs: String,
      enums: String,
    },
  ),
) as Message;

let api: TestApi;
const clients: grpcJs.Client[] = [];
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(async () => {
  for (const client of clients) client.close();
  await api.stop();
});

function open(Service: Message): Message {
  const client = new Service(`127.0.0.1:${api.grpcPort}`, grpcJs.credentials.createInsecure());
  clients.push(client);
  return client;
}

function caller(Service: Message): Call {
  const client = open(Service);
  return (name, request, key = api.adminKey) => {
    const metadata = new grpcJs.Metadata();
    if (key !== null) metadata.set("x-service-key", key);
    return new Promise((resolve, reject) => {
      client[name](request, metadata, (error: unknown, answer: Message) =>
        error ? reject(error) : resolve(answer),
      );
    });
  };
}

const failure = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: grpcJs.ServiceError) => error,
  );

describe("a client of another make (@grpc/grpc-js)", () => {
  test("creates, lists and deletes webhooks", async () => {
    const call = caller(loaded.webhook.v1.WebhookService);
    const url = "https://receiver.example/grpc-js";
    const made = await call("CreateWebhook", { process: "WEBHOOK_PROCESS_DOCUMENT_CREATED", url });
    expect(made).toMatchObject({
      created: true,
      webhook: { url, webhookProcess: "WEBHOOK_PROCESS_DOCUMENT_CREATED", apiKeyId: api.adminKeyId },
    });
    expect((await call("CreateWebhook", { process: 2, url })).created).toBe(false);
    expect((await call("ListWebhooks", {})).webhooks).toEqual([made.webhook]);
    const deleted = await call("DeleteWebhook", { webhookId: made.webhook.id });
    expect(deleted.webhook.id).toBe(made.webhook.id);
    expect((await call("ListWebhooks", {})).webhooks).toEqual([]);
  });

  test("publishes an event, and a second time as a duplicate", async () => {
    await caller(loaded.webhook.v1.WebhookService)("CreateWebhook", {
      process: 1,
      url: "https://receiver.example/publish",
    });
    const call = caller(loaded.webhook.v1.EventService);
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
    const first = await call("PublishEvent", request);
    expect(first).toMatchObject({ deliveriesQueued: 1 });
    expect(await call("PublishEvent", request)).toMatchObject({ eventId: first.eventId, duplicate: true });
    const conflict = await failure(call("PublishEvent", { ...request, userId: "v" }));
    expect(conflict?.code).toBe(grpcJs.status.ALREADY_EXISTS);
    const { deliveries } = await caller(loaded.webhook.v1.DeliveryService)("ListDeliveries", {
      eventId: first.eventId,
    });
    expect(deliveries).toHaveLength(1);
  });

  test("is told errors by their codes and in words", async () => {
    const call = caller(loaded.webhook.v1.WebhookService);
    const errors = await Promise.all([
      failure(call("ListWebhooks", {}, null)),
      failure(call("ListWebhooks", {}, "unknown")),
      failure(call("CreateWebhook", { process: 1, url: "http://plain.example" })),
      failure(call("CreateWebhook", {})),
      failure(call("DeleteWebhook", { webhookId: 4711 })),
    ]);
    const { UNAUTHENTICATED, INVALID_ARGUMENT, NOT_FOUND } = grpcJs.status;
    expect(errors.map((error) => error?.code)).toEqual([
      UNAUTHENTICATED,
      UNAUTHENTICATED,
      INVALID_ARGUMENT,
      INVALID_ARGUMENT,
      NOT_FOUND,
    ]);
    expect(errors[3]?.details).toContain("process is required");
  });

  test("asks for health without a key, of all and of each service", async () => {
    const call = caller(loaded.grpc.health.v1.Health);
    for (const service of ["", "webhook.v1.WebhookService", "webhook.v1.EventService"]) {
      expect(await call("Check", { service }, null)).toEqual({ status: "SERVING" });
    }
    expect((await failure(call("Check", { service: "nope" }, null)))?.code).toBe(grpcJs.status.NOT_FOUND);
  });

  test("watches health as it changes, until it goes", async () => {
    const reasons: string[] = [];
    const own = await startTestApi({ readiness: async () => reasons });
    const client = new loaded.grpc.health.v1.Health(
      `127.0.0.1:${own.grpcPort}`,
      grpcJs.credentials.createInsecure(),
    );
    try {
      const stream = client.Watch({ service: "webhook.v1.EventService" });
      const ended = new Promise<grpcJs.StatusObject>((resolve) => stream.on("error", resolve));
      const seen: string[] = [];
      const next = () =>
        new Promise<void>((resolve) =>
          stream.once("data", ({ status }: { status: string }) => {
            seen.push(status);
            resolve();
          }),
        );
      await next();
      const down = next();
      reasons.push("Temporal is away");
      await down;
      const up = next();
      reasons.pop();
      await up;
      expect(seen).toEqual(["SERVING", "NOT_SERVING", "SERVING"]);
      stream.cancel();
      expect((await ended).code).toBe(grpcJs.status.CANCELLED);
    } finally {
      client.close();
      await own.stop();
    }
  });
});
