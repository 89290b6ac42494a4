import { create, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ListWebhooksRequestSchema } from "../../../gen/webhook/v1/webhook_pb.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { useApi } from "../../support/test-api.ts";
import { callGrpc } from "../../support/wire.ts";

const api = await useApi();

const MESSAGE = enveloped(toBinary(ListWebhooksRequestSchema, create(ListWebhooksRequestSchema)));
const LIST = "WebhookService/ListWebhooks";

test.each([
  ["none", [], Code.Unimplemented, "protocol error: missing input message for unary method"],
  ["two", [MESSAGE, MESSAGE], Code.Unimplemented, "received extra input message for unary method"],
  ["half a message", [MESSAGE.subarray(0, 3)], Code.InvalidArgument, "incomplete envelope"],
])("a unary call has exactly one message, and is refused with %s", async (_what, sent, status, says) => {
  const message = expect.stringContaining(says);
  expect(await callGrpc(api, LIST, { body: Buffer.concat(sent) })).toMatchObject({ status, message });
});

test("an invalid deadline is refused before the message is read", async () => {
  const headers = { "grpc-timeout": "soon" };
  expect(await callGrpc(api, LIST, { body: MESSAGE, headers })).toMatchObject({
    status: Code.InvalidArgument,
    message: "protocol error: invalid grpc timeout value: soon",
  });
});
