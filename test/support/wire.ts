import { once } from "node:events";
import * as http2 from "node:http2";
import { buffer } from "node:stream/consumers";
import type { TestApi } from "./test-api.ts";

type Called = Pick<TestApi, "url" | "grpcUrl" | "adminKey">;

/** A call as it is sent. */
interface Call {
  /** POST unless given. */
  verb?: string;
  /** The content type. JSON over HTTP/1.1 and protobuf over gRPC unless given; null sends none. */
  type?: string | null;
  /** An empty JSON object over HTTP/1.1, and nothing over gRPC, unless given. */
  body?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  /** A key's secret; null sends none. The administrator's unless given. */
  key?: string | null;
}

/** An answer over HTTP/1.1. */
interface HttpAnswer {
  status: number;
  headers: Headers;
  text: string;
  /** The body as JSON; undefined for other types. */
  // biome-ignore lint/suspicious/noExplicitAny: whatever the method answers
  json: any;
}

/** An answer over gRPC. */
interface GrpcAnswer {
  headers: http2.IncomingHttpHeaders;
  trailers: http2.IncomingHttpHeaders;
  body: Buffer;
  /** The gRPC status, and its message as it is on the wire. */
  status: number;
  message: string;
}

/** The path of `Service/Method` of webhook.v1; a path stays as it is. */
const pathOf = (method: string) => (method.startsWith("/") ? method : `/webhook.v1.${method}`);

/** Calls a method of the API, or another path, over HTTP/1.1. */
export async function callHttp(
  api: Called,
  method: string,
  { verb = "POST", type = "application/json", body = "{}", headers = {}, key = api.adminKey }: Call = {},
): Promise<HttpAnswer> {
  const sent = new Headers(headers);
  if (type !== null) sent.set("Content-Type", type);
  if (key !== null) sent.set("X-Service-Key", key);
  const isBodiless = verb === "GET" || verb === "HEAD";
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const answer = await fetch(`${api.url}${pathOf(method)}`, {
    method: verb,
    headers: sent,
    ...(isBodiless ? {} : { body: bytes }),
  });
  const text = await answer.text();
  const isJson = answer.headers.get("content-type")?.startsWith("application/json");
  return {
    status: answer.status,
    headers: answer.headers,
    text,
    json: isJson ? JSON.parse(text) : undefined,
  };
}

/** Calls a method by GET, as Connect allows it for reads. */
export const callByGet = (api: Called, method: string, query: Record<string, string>, call: Call = {}) =>
  callHttp(api, `${method}?${new URLSearchParams({ connect: "v1", encoding: "json", ...query })}`, {
    ...call,
    verb: "GET",
    type: null,
  });

/** Calls a method over the gRPC listener, on a session of its own. */
export async function callGrpc(
  api: Called,
  method: string,
  { verb = "POST", type = "application/grpc+proto", body = "", headers = {}, key = api.adminKey }: Call = {},
): Promise<GrpcAnswer> {
  const session = http2.connect(api.grpcUrl);
  try {
    const sent = {
      ":method": verb,
      ":path": pathOf(method),
      ...(type === null ? {} : { "content-type": type }),
      te: "trailers",
      ...(key === null ? {} : { "x-service-key": key }),
      ...headers,
    };
    const stream = session.request(sent, { endStream: false });
    let trailers: http2.IncomingHttpHeaders = {};
    stream.on("trailers", (got: http2.IncomingHttpHeaders) => {
      trailers = got;
    });
    const response = once(stream, "response") as Promise<[http2.IncomingHttpHeaders]>;
    stream.end(body);
    const [[answered], bytes] = await Promise.all([response, buffer(stream)]);
    const { "grpc-status": status, "grpc-message": message = "" } = { ...answered, ...trailers };
    return { headers: answered, trailers, body: bytes, status: Number(status), message: String(message) };
  } finally {
    session.destroy();
  }
}
