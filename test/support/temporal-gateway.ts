import { once } from "node:events";
import {
  connect,
  constants,
  createServer,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { part } from "./parts.ts";

/** Stands between a worker and the run's Temporal. */
export interface TemporalGateway {
  /** `host:port`, for TEMPORAL_ADDRESS. */
  address: string;
  /** Answers each call with this gRPC status, or with that for its headers and connection; null passes calls on. */
  answer(status: number | null | StatusOf): void;
  /** The number of open connections to the gateway. */
  connections(): number;
}

type StatusOf = (headers: IncomingHttpHeaders, connection: ServerHttp2Session) => number | null;

/**
 * Starts a gateway until the end of the test. It passes all calls on at first.
 *
 * @param port 0: any free one
 */
export async function startTemporalGateway(port = 0): Promise<TemporalGateway> {
  let statusOf: StatusOf = () => null;
  const temporal = connect(`http://${(await part("temporal")).address}`);
  temporal.on("error", () => {});
  const server = createServer();
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => {
    sessions.add(session);
    session.on("error", () => {}).on("close", () => sessions.delete(session));
  });
  server.on("stream", (stream: ServerHttp2Stream, headers) => {
    stream.on("error", () => {});
    const status = statusOf(headers, stream.session as ServerHttp2Session);
    if (status !== null) {
      const refusal = { "content-type": "application/grpc", "grpc-status": String(status) };
      // Like some servers, it repeats what it was sent.
      const details = encodeURIComponent(`no access with ${headers.authorization}`);
      stream.respond({ ...refusal, "grpc-message": details }, { endStream: true });
      return;
    }
    const call = temporal.request(headers);
    call.on("error", () => stream.destroy());
    stream.on("close", () => call.destroy());
    stream.pipe(call);
    let trailers: OutgoingHttpHeaders = {};
    call.on("trailers", (sent) => {
      trailers = sent;
    });
    stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    call.on("response", (response, flags) => {
      const endStream = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      stream.respond(response, endStream ? { endStream } : { waitForTrailers: true });
      if (!endStream) call.pipe(stream);
    });
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const session of [temporal, ...sessions]) session.destroy();
    server.close();
  });
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    answer(status) {
      statusOf = typeof status === "function" ? status : () => status;
    },
    connections: () => sessions.size,
  };
}
