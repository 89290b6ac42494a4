import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import * as grpcJs from "@grpc/grpc-js";
import { loadFileDescriptorSetFromBuffer, loadSync } from "@grpc/proto-loader";
import { expect, onTestFinished, test } from "vitest";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { expectRefused } from "../../support/refusals.ts";
import { startTestApi, useApi } from "../../support/test-api.ts";

// biome-ignore lint/suspicious/noExplicitAny: the loader knows the messages at run time only
type Message = any;

const root = fileURLToPath(new URL("../../..", import.meta.url));
const loaded = grpcJs.loadPackageDefinition(
  loadSync(["grpc/reflection/v1/reflection.proto", "grpc/reflection/v1alpha/reflection.proto"], {
    includeDirs: [`${root}third_party`],
    oneofs: true,
    arrays: true,
  }),
) as Message;

const api = await useApi();

/** One stream of questions, of a client of another make. */
function conversation(version: "v1" | "v1alpha" = "v1"): (question: Message) => Promise<Message> {
  const client = new loaded.grpc.reflection[version].ServerReflection(
    `127.0.0.1:${api.grpcPort}`,
    grpcJs.credentials.createInsecure(),
  );
  const stream = client.ServerReflectionInfo();
  onTestFinished(() => {
    stream.end();
    client.close();
  });
  return async (question) => {
    stream.write(question);
    const [answer] = await once(stream, "data");
    return answer;
  };
}

/** The names of the files in an answer. */
function filesIn(answer: Message): string[] {
  return answer.fileDescriptorResponse.fileDescriptorProto.map(
    (bytes: Buffer) => fromBinary(FileDescriptorProtoSchema, bytes).name,
  );
}

test.each(["v1", "v1alpha"] as const)("reflection %s lists every service, without a key", async (version) => {
  const ask = conversation(version);
  const { listServicesResponse } = await ask({ listServices: "*" });
  expect(listServicesResponse.service.map(({ name }: Message) => name)).toEqual([
    ...[...SERVICES, SessionService].map(({ typeName }) => typeName),
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
  ]);
});

test("a file or symbol is answered by its file with all it imports, each once a stream", async () => {
  const ask = conversation();
  const [first, ...imported] = filesIn(await ask({ fileByFilename: "webhook/v1/webhook.proto" }));
  expect(first).toBe("webhook/v1/webhook.proto");
  const files = [
    "google/api/http",
    "google/protobuf/descriptor",
    "google/protobuf/timestamp",
    "webhook/v1/event",
  ];
  expect(imported).toEqual(expect.arrayContaining(files.map((file) => `${file}.proto`)));
  for (const [symbol, file] of [
    ["webhook.v1.EventService", "webhook/v1/event.proto"],
    ["webhook.v1.EventService.PublishEvent", "webhook/v1/event.proto"],
    ["webhook.v1.OrderLine.sku", "webhook/v1/event.proto"],
    ["webhook.v1.WEBHOOK_PROCESS_ORDER_DISPATCHED", "webhook/v1/event.proto"],
    ["webhook.v1.required_permission", "webhook/v1/options.proto"],
    ["google.protobuf.Timestamp", "google/protobuf/timestamp.proto"],
    ["google.rpc.ErrorInfo", "google/rpc/error_details.proto"],
    ["grpc.health.v1.HealthCheckResponse.ServingStatus", "health/v1/health.proto"],
  ] as const)
    expect(filesIn(await ask({ fileContainingSymbol: symbol }))[0], symbol).toBe(file);
});

test("extensions are found by extended message and number; an unknown one is NOT_FOUND, and the stream continues", async () => {
  const ask = conversation();
  const containingType = "google.protobuf.MethodOptions";
  const numbersOf = async (type: string) =>
    (await ask({ allExtensionNumbersOfType: type })).allExtensionNumbersResponse;
  const { baseTypeName, extensionNumber: numbers } = await numbersOf(containingType);
  expect([baseTypeName, numbers]).toEqual([containingType, expect.arrayContaining([50001, 72295728])]);
  expect((await numbersOf("webhook.v1.Webhook")).extensionNumber).toEqual([]);
  const extension = (extensionNumber: number) =>
    ask({ fileContainingExtension: { containingType, extensionNumber } });
  expect(filesIn(await extension(50001))[0]).toBe("webhook/v1/options.proto");
  expect(filesIn(await extension(72295728))[0]).toBe("google/api/annotations.proto");
  for (const answer of [
    await extension(1),
    await ask({ fileByFilename: "nope.proto" }),
    await ask({ fileContainingSymbol: "nope.Nope" }),
    await ask({ allExtensionNumbersOfType: "nope.Nope" }),
  ])
    expect(answer.errorResponse.errorCode).toBe(grpcJs.status.NOT_FOUND);
  expect((await ask({ host: "a" })).errorResponse.errorCode).toBe(grpcJs.status.INVALID_ARGUMENT);
  const again = await ask({ host: "a", listServices: "" });
  expect([again.validHost, again.originalRequest.listServices]).toEqual(["a", ""]);
});

test("a client made from nothing but what reflection tells can call the service", async () => {
  const ask = conversation();
  const { fileDescriptorResponse } = await ask({ fileContainingSymbol: "webhook.v1.WebhookService" });
  const file = fileDescriptorResponse.fileDescriptorProto.map((bytes: Buffer) =>
    fromBinary(FileDescriptorProtoSchema, bytes),
  );
  const set = toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file }));
  const definition = loadFileDescriptorSetFromBuffer(Buffer.from(set), { enums: String, defaults: true });
  const { WebhookService } = (grpcJs.loadPackageDefinition(definition) as Message).webhook.v1;
  const client = new WebhookService(`127.0.0.1:${api.grpcPort}`, grpcJs.credentials.createInsecure());
  onTestFinished(() => client.close());
  const metadata = new grpcJs.Metadata();
  metadata.set("x-service-key", api.adminKey);

  const url = "https://receiver.example/reflected";
  const made = await new Promise<Message>((resolve, reject) =>
    client.CreateWebhook({ process: 1, url }, metadata, (error: unknown, answer: Message) =>
      error ? reject(error) : resolve(answer),
    ),
  );
  expect(made.webhook).toMatchObject({ url, webhook_process: "WEBHOOK_PROCESS_ORDER_DISPATCHED" });
});

test("an open stream of questions does not hold up the service's stop", async () => {
  // Held up, it would take longer than a test may.
  const own = await startTestApi({ drainMs: 3_600_000 });
  const questions = async function* () {
    yield { messageRequest: { case: "listServices" as const, value: "" } };
    await new Promise<never>(() => {});
  };
  const answers = own.client(ServerReflection).serverReflectionInfo(questions())[Symbol.asyncIterator]();
  await answers.next();
  await own.stop();
  await expectRefused(answers.next(), Code.Unavailable);
});
