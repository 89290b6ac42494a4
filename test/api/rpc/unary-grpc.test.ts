import { gunzipSync } from "node:zlib";
import { create, fromBinary, toBinary, toJsonString } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ListWebhooksRequestSchema, ListWebhooksResponseSchema } from "../../../gen/webhook/v1/webhook_pb.ts";
import { aWebhook } from "../../support/builders.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { useApi } from "../../support/test-api.ts";
import { callGrpc } from "../../support/wire.ts";

const api = await useApi();

const REQUEST = create(ListWebhooksRequestSchema, { pageSize: 100 });
const MESSAGE = enveloped(toBinary(ListWebhooksRequestSchema, REQUEST));
const COMPRESSED = 1;
const list = (body: Buffer, call: Parameters<typeof callGrpc>[2] = {}) =>
  callGrpc(api, "WebhookService/ListWebhooks", { ...call, body: new Uint8Array(body) });

test.each([
  ["none", Buffer.alloc(0), Code.Unimplemented, "protocol error: missing input message for unary method"],
  [
    "two",
    Buffer.concat([MESSAGE, MESSAGE]),
    Code.Unimplemented,
    "protocol error: received extra input message for unary method",
  ],
  ["half a message", MESSAGE.subarray(0, 3), Code.InvalidArgument, "incomplete envelope"],
])("a unary call has exactly one message, and is refused with %s", async (_what, body, status, says) => {
  expect(await list(body)).toMatchObject({ status, message: expect.stringContaining(says) });
});

test("a response is compressed if the client accepts it and it is large", async () => {
  for (let n = 0; n < 40; n += 1) await aWebhook().at(`https://shop.example/hooks/${n}`).in(api.context.db);
  const plain = await list(MESSAGE, { headers: { "grpc-accept-encoding": "identity" } });
  const zipped = await list(MESSAGE, { headers: { "grpc-accept-encoding": "identity,gzip" } });
  expect([plain.headers["grpc-encoding"], zipped.headers["grpc-encoding"]]).toEqual([undefined, "gzip"]);
  expect([plain.body[0], zipped.body[0]]).toEqual([0, COMPRESSED]);
  const message = gunzipSync(zipped.body.subarray(5));
  expect(message).toEqual(plain.body.subarray(5));
  expect(fromBinary(ListWebhooksResponseSchema, message).webhooks).toHaveLength(40);
});

test("a message may be JSON", async () => {
  const request = Buffer.from(toJsonString(ListWebhooksRequestSchema, REQUEST));
  const { headers, status, body } = await list(enveloped(request), { type: "application/grpc+json" });
  expect([headers["content-type"], status]).toEqual(["application/grpc+json", 0]);
  expect(JSON.parse(body.subarray(5).toString())).toHaveProperty("webhooks");
});

test("an invalid deadline is refused before the message is read", async () => {
  expect(await list(MESSAGE, { headers: { "grpc-timeout": "soon" } })).toMatchObject({
    status: Code.InvalidArgument,
    message: "protocol error: invalid grpc timeout value: soon",
  });
});
