import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect as openSocket } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import pino from "pino";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { ServerReflectionRequestSchema } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { PublishEventsRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

interface Line {
  level: number;
  method?: string;
  code?: string;
}

const PUBLISH = "webhook.v1.EventService/PublishEvents";
const REFLECT = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

const lines: Line[] = [];
let api: TestApi;
beforeAll(async () => {
  const log = pino({ level: "debug" }, { write: (line) => void lines.push(JSON.parse(line)) });
  api = await startTestApi({ log });
});
afterAll(() => api.stop());
beforeEach(() => void lines.splice(0));

/** A message of the stream with one event, in its envelope; and when it has been read. */
function oneEvent() {
  const event = orderEvent();
  const message = toBinary(
    PublishEventsRequestSchema,
    create(PublishEventsRequestSchema, { events: [event] }),
  );
  const stored = () => api.context.db("events").where("idempotency_key", event.idempotencyKey);
  return {
    bytes: Buffer.from(encodeEnvelope(0, message)),
    isRead: () => expect.poll(stored).toHaveLength(1),
  };
}

function openStream(method: string) {
  const session = connectHttp2(api.grpcUrl);
  const stream = session.request({
    ":method": "POST",
    ":path": `/${method}`,
    "content-type": "application/grpc",
    te: "trailers",
    "x-service-key": api.adminKey,
  });
  stream.on("error", () => {});
  return { session, stream };
}

/** The log tells how the call ended, and holds no warning and no error. */
async function expectGone(method: string): Promise<void> {
  await expect.poll(() => lines.find((line) => line.method === method)?.code).toBe("Canceled");
  expect(lines.filter(({ level }) => level >= 40)).toEqual([]);
}

test("a publisher who vanishes in the middle of a stream is no fault of ours in the log", async () => {
  const { session, stream } = openStream(PUBLISH);
  const { bytes, isRead } = oneEvent();
  stream.write(bytes);
  await isRead();
  session.destroy();
  await expectGone(PUBLISH);
});

test("a client of reflection who vanishes between two questions is none either", async () => {
  const { session, stream } = openStream(REFLECT);
  const question = create(ServerReflectionRequestSchema, {
    messageRequest: { case: "listServices", value: "" },
  });
  stream.write(encodeEnvelope(0, toBinary(ServerReflectionRequestSchema, question)));
  await once(stream, "data");
  session.destroy();
  await expectGone(REFLECT);
});

test("a publisher by Connect over HTTP/1.1 who vanishes is none either", async () => {
  const socket = openSocket(api.httpPort, "127.0.0.1");
  const { bytes, isRead } = oneEvent();
  const head = [
    `POST /${PUBLISH} HTTP/1.1`,
    "Host: a",
    "Content-Type: application/connect+proto",
    `X-Service-Key: ${api.adminKey}`,
    "Transfer-Encoding: chunked",
  ].join("\r\n");
  socket.write(`${head}\r\n\r\n${bytes.length.toString(16)}\r\n`);
  socket.write(Buffer.concat([bytes, Buffer.from("\r\n")]));
  await isRead();
  socket.destroy();
  await expectGone(PUBLISH);
});
