import type { Interceptor, Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import type { TestApi } from "./test-api.ts";

/** Sends the key with every call that carries none. */
export function sendKey(key: () => string): Interceptor {
  return (next) => (request) => {
    if (!request.header.has("X-Service-Key")) request.header.set("X-Service-Key", key());
    return next(request);
  };
}

/** The given key, or else the administrator's, which changes. */
const withKey = (api: Pick<TestApi, "adminKey">, secret?: string) => sendKey(() => secret ?? api.adminKey);

/** gRPC over h2c; the administrator's key unless another is given. Over a connection of its own unless one is given. */
export function grpc(
  api: Pick<TestApi, "adminKey" | "grpcUrl">,
  key?: string,
  connection = new Http2SessionManager(api.grpcUrl),
): Transport {
  return createGrpcTransport({
    baseUrl: api.grpcUrl,
    sessionManager: connection,
    interceptors: [withKey(api, key)],
  });
}

/** The Connect protocol over HTTP/1.1. */
export function connect(api: TestApi, key?: string, useBinaryFormat = true): Transport {
  return createConnectTransport({
    baseUrl: api.url,
    httpVersion: "1.1",
    useBinaryFormat,
    interceptors: [withKey(api, key)],
  });
}

/** gRPC-Web over HTTP/1.1, as browsers speak it. */
export function grpcWeb(api: TestApi, key?: string): Transport {
  return createGrpcWebTransport({
    baseUrl: api.url,
    httpVersion: "1.1",
    interceptors: [withKey(api, key)],
  });
}

/** What the services are called by, each by its name, for tests of what must be alike in all. */
export const PROTOCOLS: [string, (api: TestApi, key?: string) => Transport][] = [
  ["gRPC", (api, key) => grpc(api, key)],
  ["gRPC-Web", grpcWeb],
  ["Connect", connect],
  ["Connect with JSON", (api, key) => connect(api, key, false)],
];
