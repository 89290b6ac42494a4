import type { Interceptor, Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import type { TestApi } from "./test-api.ts";

/** Sends the key with every call that carries none. */
function withKey(secret: string): Interceptor {
  return (next) => (request) => {
    if (!request.header.has("X-Service-Key")) request.header.set("X-Service-Key", secret);
    return next(request);
  };
}

/** gRPC over h2c; the administrator's key unless another is given. */
export function grpc(api: TestApi, key = api.adminKey): Transport {
  return createGrpcTransport({ baseUrl: api.grpcUrl, interceptors: [withKey(key)] });
}

/** The Connect protocol over HTTP/1.1. */
export function connect(api: TestApi, key = api.adminKey, useBinaryFormat = true): Transport {
  return createConnectTransport({
    baseUrl: api.url,
    httpVersion: "1.1",
    useBinaryFormat,
    interceptors: [withKey(key)],
  });
}

/** gRPC-Web over HTTP/1.1, as browsers speak it. */
export function grpcWeb(api: TestApi, key = api.adminKey): Transport {
  return createGrpcWebTransport({ baseUrl: api.url, httpVersion: "1.1", interceptors: [withKey(key)] });
}

/** What the services are called by, each by its name, for tests of what must be alike in all. */
export const PROTOCOLS: [string, (api: TestApi, key?: string) => Transport][] = [
  ["gRPC", grpc],
  ["gRPC-Web", grpcWeb],
  ["Connect", connect],
  ["Connect with JSON", (api, key) => connect(api, key, false)],
];
