import { fileURLToPath } from "node:url";
import * as grpcJs from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { expect, onTestFinished, test } from "vitest";
import { startTestApi, type TestApi, useApi } from "../support/test-api.ts";

// biome-ignore lint/suspicious/noExplicitAny: the loader knows the messages at run time only
type Message = any;

const root = fileURLToPath(new URL("../..", import.meta.url));
const dependencies = ["protobufjs", "grpc-health-check/proto"].map((name) => `${root}node_modules/${name}`);
const loaded = grpcJs.loadPackageDefinition(
  loadSync(["webhook/v1/webhook.proto", "health/v1/health.proto"], {
    includeDirs: [`${root}proto`, ...dependencies],
    defaults: true,
    longs: String,
    enums: String,
  }),
) as Message;
const { WebhookService } = loaded.webhook.v1;
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

// A client of another make: @grpc/grpc-js. That it creates, publishes and lists, the example grpc-js.mjs proves.
test.each([
  { what: "no key", key: null, code: "UNAUTHENTICATED" },
  { what: "a wrong URL", request: { process: 1, url: "http://plain.example" }, code: "INVALID_ARGUMENT" },
  { what: "no webhook", method: "DeleteWebhook", request: { webhookId: 4711 }, code: "NOT_FOUND" },
])(
  "a foreign client is told errors by their codes: $what",
  async ({ method = "CreateWebhook", request = {}, key, code }) => {
    const status = grpcJs.status[code as "NOT_FOUND"];
    await expect(call(WebhookService, method, request, key)).rejects.toMatchObject({ code: status });
  },
);

test("a foreign client asks for health without a key, of all and of each service", async () => {
  for (const service of ["", "webhook.v1.WebhookService", "webhook.v1.EventService"])
    expect(await call(Health, "Check", { service }, null)).toEqual({ status: "SERVING" });
  await expect(call(Health, "Check", { service: "nope" }, null)).rejects.toMatchObject({
    code: grpcJs.status.NOT_FOUND,
  });
});

test("a foreign client watches health until it disconnects; an unknown service is SERVICE_UNKNOWN", async () => {
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
