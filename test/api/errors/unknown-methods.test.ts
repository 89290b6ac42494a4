import type { ConnectError, Transport } from "@connectrpc/connect";
import { Code } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { expect, onTestFinished, test } from "vitest";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { PROTOCOLS } from "../../support/clients.ts";
import { exampleOf } from "../../support/described-answers.ts";
import { refused } from "../../support/grpc-calls.ts";
import { startTestApi, useApi } from "../../support/test-api.ts";
import { callGrpc, callHttp } from "../../support/wire.ts";

const api = await useApi();

const PATH = "/webhook.v1.WebhookService/Nope";
const SAID = `no such method: ${PATH}; list the services by reflection`;

/** Calls a method that the service does not have. */
function callUnknown(transport: Transport): Promise<ConnectError> {
  const method = { ...WebhookService.method.listWebhooks, name: "Nope" };
  return refused(transport.unary(method as never, undefined, undefined, undefined, {}));
}

test.each([
  ...PROTOCOLS,
  ["Connect over HTTP/2", () => createConnectTransport({ baseUrl: api.grpcUrl, httpVersion: "2" })] as const,
])("over %s an unknown method is UNIMPLEMENTED, and the error names the method", async (_, transport) => {
  const error = await callUnknown(transport(api));
  expect([error.code, error.rawMessage]).toEqual([Code.Unimplemented, SAID]);
  expect(error.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "METHOD_NOT_SERVED" }]);
});

test("what is no call of a method is 404 in the envelope on the HTTP port, and in JSON on the gRPC port", async () => {
  const { status, envelope } = await api.rest("GET", "/webhook.v1.WebhookService");
  expect([status, envelope.Success]).toEqual([404, false]);
  const { headers, body } = await callGrpc(api, "/api/webhook/list", { verb: "GET", type: null });
  expect([headers[":status"], JSON.parse(String(body))]).toMatchObject([
    404,
    { code: "unimplemented", message: "no such method: /api/webhook/list; list the services by reflection" },
  ]);
});

test("a process that only delivers has /healthz and /readyz, and tells callers where to ask", async () => {
  const worker = await startTestApi({ services: false });
  onTestFinished(() => worker.stop());
  expect(worker.grpcPort).toBeNull();
  const error = await callUnknown(createConnectTransport({ baseUrl: worker.url, httpVersion: "1.1" }));
  expect([error.code, error.rawMessage]).toEqual([
    Code.Unimplemented,
    `no such method: ${PATH}; this process only delivers; call a process with ROLE=api or ROLE=all`,
  ]);
  const { status, envelope } = await worker.rest("GET", "/api/webhook/list");
  const told =
    "no such path: /api/webhook/list; this process only delivers; call a process with ROLE=api or ROLE=all";
  expect([status, envelope.Warnings]).toEqual([404, [told]]);
  expect(exampleOf("UnknownPath", "worker")).toBe(told);
  const statuses = ["/openapi.json", "/healthz", "/readyz"].map((path) => fetch(`${worker.url}${path}`));
  expect((await Promise.all(statuses)).map((answer) => answer.status)).toEqual([404, 200, 200]);
});

test.each([
  ["/com.example.Greeter/SayHello", "/com.example.Greeter/SayHello"],
  [`/webhook.v1.WebhookService/${"x".repeat(5_000)}`, `/webhook.v1.WebhookService/${"x".repeat(73)}…`],
])("a call of a path that is no method's is told how to list them: %s", async (asked, shown) => {
  const { status, json } = await callHttp(api, asked);
  const message = `no such method: ${shown}; list the services by reflection`;
  expect([status, json]).toMatchObject([404, { code: "unimplemented", message }]);
});
