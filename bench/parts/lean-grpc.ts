import { type ClientHttp2Session, connect } from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  EventService,
  PublishEventRequestSchema,
  type PublishEventResponse,
  PublishEventResponseSchema,
} from "../../gen/webhook/v1/event_pb.ts";
import type { publishRequest } from "./payload.ts";

const PREFIX_BYTES = 5;

/**
 * A minimal gRPC client for one method. Client libraries for Node cost as much as the service for the same call, and
 * would distort measurements on the same machine.
 */
export function leanPublisher(grpcUrl: string, key: string) {
  const session: ClientHttp2Session = connect(grpcUrl);
  const headers = {
    ":method": "POST",
    ":path": `/${EventService.typeName}/${EventService.method.publishEvent.name}`,
    "content-type": "application/grpc+proto",
    te: "trailers",
    "x-service-key": key,
  };
  return {
    /** @throws Error with the status's message if it is not OK */
    publishEvent(request: ReturnType<typeof publishRequest>): Promise<PublishEventResponse> {
      const message = toBinary(PublishEventRequestSchema, create(PublishEventRequestSchema, request));
      const frame = Buffer.alloc(PREFIX_BYTES + message.length);
      frame.writeUInt32BE(message.length, 1);
      frame.set(message, PREFIX_BYTES);
      return new Promise((resolve, reject) => {
        const stream = session.request(headers);
        const parts: Buffer[] = [];
        let status: unknown;
        let text: unknown;
        const take = (fields: Record<string, unknown>) => {
          status = fields["grpc-status"] ?? status;
          text = fields["grpc-message"] ?? text;
        };
        stream.on("response", take);
        stream.on("trailers", take);
        stream.on("data", (part: Buffer) => parts.push(part));
        stream.on("error", reject);
        stream.on("end", () => {
          if (String(status) !== "0") return reject(new Error(`status ${status}: ${text}`));
          resolve(fromBinary(PublishEventResponseSchema, Buffer.concat(parts).subarray(PREFIX_BYTES)));
        });
        stream.end(frame);
      });
    },
    close: () => session.close(),
  };
}
