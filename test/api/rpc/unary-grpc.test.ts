import { once } from "node:events";
import * as http2 from "node:http2";
import { gunzipSync } from "node:zlib";
import { create, fromBinary, toBinary, toJsonString } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import {
  CreateWebhookRequestSchema,
  ListWebhooksRequestSchema,
  ListWebhooksResponseSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const LIST = toBinary(ListWebhooksRequestSchema, create(ListWebhooksRequestSchema));
const COMPRESSED = 1;

/** The envelope of a message. */
function envelope(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Makes a call of WebhookService on the wire. */
async function call(method: string, body: Buffer, headers: http2.OutgoingHttpHeaders = {}) {
  const session = http2.connect(api.grpcUrl);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": `/webhook.v1.WebhookService/${method}`,
    "content-type": "application/grpc",
    te: "trailers",
    "x-service-key": api.adminKey,
    ...headers,
  });
  const parts: Buffer[] = [];
  stream.on("data", (part: Buffer) => parts.push(part));
  const [response, trailers] = [once(stream, "response"), once(stream, "trailers")];
  stream.end(body);
  return {
    headers: (await response)[0] as http2.IncomingHttpHeaders,
    trailers: (await trailers)[0] as http2.IncomingHttpHeaders,
    body: Buffer.concat(parts),
  };
}

test("a unary call has exactly one message", async () => {
  const none = await call("ListWebhooks", Buffer.alloc(0));
  const two = await call("ListWebhooks", Buffer.concat([envelope(LIST), envelope(LIST)]));
  const half = await call("ListWebhooks", Buffer.from([0, 0, 0]));
  const statuses = [none, two, half].map(({ trailers }) => Number(trailers["grpc-status"]));
  expect(statuses).toEqual([Code.Unimplemented, Code.Unimplemented, Code.InvalidArgument]);
  expect([none, two].map(({ trailers }) => trailers["grpc-message"])).toEqual([
    "protocol error: missing input message for unary method",
    "protocol error: received extra input message for unary method",
  ]);
});

test("a response is compressed if the client accepts it and it is large", async () => {
  for (let n = 0; n < 40; n += 1) {
    const request = create(CreateWebhookRequestSchema, {
      process: 1,
      url: `https://shop.example/hooks/${n}`,
    });
    const { trailers } = await call("CreateWebhook", envelope(toBinary(CreateWebhookRequestSchema, request)));
    expect(trailers["grpc-status"]).toBe("0");
  }
  const plain = await call("ListWebhooks", envelope(LIST), { "grpc-accept-encoding": "identity" });
  const zipped = await call("ListWebhooks", envelope(LIST), { "grpc-accept-encoding": "identity,gzip" });
  expect([plain.headers["grpc-encoding"], zipped.headers["grpc-encoding"]]).toEqual([undefined, "gzip"]);
  expect([plain.body[0], zipped.body[0]]).toEqual([0, COMPRESSED]);
  const message = gunzipSync(zipped.body.subarray(5));
  expect(message).toEqual(plain.body.subarray(5));
  expect(fromBinary(ListWebhooksResponseSchema, message).webhooks).toHaveLength(40);
});

test("a message may be JSON", async () => {
  const request = toJsonString(ListWebhooksRequestSchema, create(ListWebhooksRequestSchema, { pageSize: 1 }));
  const { headers, trailers, body } = await call("ListWebhooks", envelope(Buffer.from(request)), {
    "content-type": "application/grpc+json",
  });
  expect([headers["content-type"], trailers["grpc-status"]]).toEqual(["application/grpc+json", "0"]);
  expect(JSON.parse(body.subarray(5).toString())).toHaveProperty("webhooks");
});

test("an invalid deadline is refused before the message is read", async () => {
  const { trailers } = await call("ListWebhooks", envelope(LIST), { "grpc-timeout": "soon" });
  expect([trailers["grpc-status"], trailers["grpc-message"]]).toEqual([
    String(Code.InvalidArgument),
    "protocol error: invalid grpc timeout value: soon",
  ]);
});
