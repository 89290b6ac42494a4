import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { json } from "node:stream/consumers";
import { Code, type ConnectError, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import * as grpcJs from "@grpc/grpc-js";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { refused } from "../../support/grpc-calls.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let plain: TestApi;
let secure: TestApi;
let ca: string;
beforeAll(async () => {
  const authority = await createLocalAuthority();
  ca = authority.cert;
  plain = await startTestApi();
  secure = await startTestApi({ tls: await authority.issue(["localhost"]) });
});
afterAll(async () => {
  await plain.stop();
  await secure.stop();
});

const PATH = "/webhook.v1.WebhookService/Nope";
const METHODS = WebhookService.methods.map(({ name }) => name).join(", ");
const SAID = `no such method: ${PATH}; webhook.v1.WebhookService has the methods ${METHODS}; list the services by reflection`;

/** Calls a method that the service does not have. */
function callUnknown(transport: Transport): Promise<ConnectError> {
  const method = { ...WebhookService.method.listWebhooks, name: "Nope" };
  return refused(transport.unary(method as never, undefined, undefined, undefined, {}));
}

const nodeOptions = () => ({ ca });
const transports: [string, () => Transport][] = [
  ["gRPC", () => createGrpcTransport({ baseUrl: plain.grpcUrl })],
  ["gRPC with TLS", () => createGrpcTransport({ baseUrl: secure.url, nodeOptions: nodeOptions() })],
  ["gRPC-Web", () => createGrpcWebTransport({ baseUrl: plain.url, httpVersion: "1.1" })],
  ["Connect", () => createConnectTransport({ baseUrl: plain.url, httpVersion: "1.1" })],
  ["Connect over HTTP/2", () => createConnectTransport({ baseUrl: plain.grpcUrl, httpVersion: "2" })],
  [
    "Connect with TLS",
    () => createConnectTransport({ baseUrl: secure.url, httpVersion: "2", nodeOptions: nodeOptions() }),
  ],
];

test.each(transports)(
  "over %s a method that there is not is UNIMPLEMENTED, with what was asked for",
  async (_, transport) => {
    const error = await callUnknown(transport());
    expect([error.code, error.rawMessage]).toEqual([Code.Unimplemented, SAID]);
    expect(error.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "METHOD_NOT_SERVED" }]);
  },
);

test.each<[string, () => grpcJs.Client]>([
  ["", () => new grpcJs.Client(`127.0.0.1:${plain.grpcPort}`, grpcJs.credentials.createInsecure())],
  [
    " with TLS",
    () => new grpcJs.Client(`localhost:${secure.httpPort}`, grpcJs.credentials.createSsl(Buffer.from(ca))),
  ],
])("a client of another make%s is told the same", async (_, open) => {
  const client = open();
  onTestFinished(() => client.close());
  const echo = (bytes: Buffer) => bytes;
  const error = await new Promise<grpcJs.ServiceError | null>((resolve) => {
    client.makeUnaryRequest(PATH, echo, echo, Buffer.alloc(0), resolve);
  });
  expect(error).toMatchObject({ code: grpcJs.status.UNIMPLEMENTED, details: SAID });
});

test("what is no call of a method is 404 in the envelope on the HTTP port, and in JSON on the gRPC port", async () => {
  const { status, envelope } = await plain.rest("GET", "/webhook.v1.WebhookService");
  expect([status, envelope.Success]).toEqual([404, false]);
  const session = connectHttp2(plain.grpcUrl);
  onTestFinished(() => session.destroy());
  const stream = session.request({ ":path": "/api/webhook/list" });
  const [headers] = await once(stream, "response");
  expect([headers[":status"], await json(stream)]).toMatchObject([
    404,
    {
      code: "unimplemented",
      message: "no such method: /api/webhook/list; list the services by reflection",
    },
  ]);
});

test("a call to a process that only delivers is told where to ask", async () => {
  const worker = await startTestApi({ services: false });
  onTestFinished(() => worker.stop());
  const error = await callUnknown(createConnectTransport({ baseUrl: worker.url, httpVersion: "1.1" }));
  expect([error.code, error.rawMessage]).toEqual([
    Code.Unimplemented,
    `no such method: ${PATH}; this process only delivers; call a process with ROLE=api or ROLE=all`,
  ]);
});

test.each([
  ["/webhook.v1.WebhookService/ListWebhook", "/webhook.v1.WebhookService/ListWebhooks"],
  ["/webhook.v1.WebhookService/listwebhooks", "/webhook.v1.WebhookService/ListWebhooks"],
  ["/webhook.v1.WebhookService/PublishEvent", "/webhook.v1.EventService/PublishEvent"],
  ["/webhook.v1.EventsService/PublishEvent", "/webhook.v1.EventService/PublishEvent"],
  ["/webhook.EventService/PublishEvent", "/webhook.v1.EventService/PublishEvent"],
  ["/Webhook.V1.EventService/PublishEvents", "/webhook.v1.EventService/PublishEvents"],
  ["/webhook.v1.EventServce/PublishEventBach", "/webhook.v1.EventService/PublishEventBatch"],
  ["/webhook.v2.WebhookService/ListWebhooks", "/webhook.v1.WebhookService/ListWebhooks"],
])("a call of %s is told of %s, over HTTP and gRPC", async (asked, meant) => {
  const said = `no such method: ${asked}; did you mean ${meant}? list the services by reflection`;
  const answer = await fetch(`${plain.url}${asked}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: "{}",
  });
  expect([answer.status, await answer.json()]).toMatchObject([404, { code: "unimplemented", message: said }]);
  const client = new grpcJs.Client(`127.0.0.1:${plain.grpcPort}`, grpcJs.credentials.createInsecure());
  onTestFinished(() => client.close());
  const echo = (bytes: Buffer) => bytes;
  const error = await new Promise<grpcJs.ServiceError | null>((resolve) => {
    client.makeUnaryRequest(asked, echo, echo, Buffer.alloc(0), resolve);
  });
  expect(error).toMatchObject({ code: grpcJs.status.UNIMPLEMENTED, details: said });
});

test.each([
  ["short", "/com.example.Greeter/SayHello"],
  ["long", `/webhook.v1.WebhookService/${"x".repeat(5_000)}`],
])("a call of a %s path that is like no method is told of none", async (_length, asked) => {
  const answer = await fetch(`${plain.url}${asked}`, { method: "POST" });
  expect(answer.status).toBe(404);
  expect(((await answer.json()) as { message: string }).message).not.toContain("did you mean");
});
