import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { Code, createClient, type Transport } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { reasonOf, refused } from "../../support/grpc-calls.ts";
import { part } from "../../support/parts.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({ page: (await part("page")).folder });
});
afterAll(() => api.stop());

const key = () => ({ headers: { "X-Service-Key": api.adminKey } });

describe.each([
  ["gzip", compressionGzip],
  ["br", compressionBrotli],
])("over gRPC and its like, %s", (name, compression) => {
  const options = { sendCompression: compression, acceptCompression: [compression], compressMinBytes: 1 };
  const transports: [string, () => Transport][] = [
    ["gRPC", () => createGrpcTransport({ baseUrl: api.grpcUrl, ...options })],
    ["gRPC-Web", () => createGrpcWebTransport({ baseUrl: api.url, httpVersion: "1.1", ...options })],
    ["Connect", () => createConnectTransport({ baseUrl: api.url, httpVersion: "1.1", ...options })],
  ];

  test.each(transports)("is read and written by %s", async (protocol, transport) => {
    const webhooks = createClient(WebhookService, transport());
    const encodings: (string | null)[] = [];
    const call = {
      ...key(),
      onHeader: (headers: Headers) =>
        void encodings.push(headers.get("grpc-encoding") ?? headers.get("content-encoding")),
    };
    const url = `https://receiver.example/${protocol}/${name}/${"long/".repeat(300)}`;
    const { webhook } = await webhooks.createWebhook({ process: 2, url }, call);
    expect(webhook?.url).toBe(url);
    expect((await webhooks.listWebhooks({}, call)).webhooks).toEqual([webhook]);
    await webhooks.deleteWebhook({ webhookId: webhook?.id as bigint }, call);
    expect(encodings).toEqual([name, name, name]);
  });

  test.each(transports)("does not get around the limit of a message's size by %s", async (_, transport) => {
    const url = "x".repeat(8 * 1024 * 1024);
    const error = await refused(
      createClient(WebhookService, transport()).createWebhook({ process: 1, url }, key()),
    );
    expect([error.code, reasonOf(error)]).toEqual([Code.ResourceExhausted, "MESSAGE_TOO_LARGE"]);
  });
});

interface Packed {
  encoding: string | string[] | undefined;
  vary: string | string[] | undefined;
  length: string | string[] | undefined;
  bytes: Buffer;
}

/** Asks as it is told, and unpacks nothing. */
async function get(path: string, acceptEncoding?: string, method: "GET" | "HEAD" = "GET"): Promise<Packed> {
  const headers = { "x-service-key": api.adminKey };
  const { body, headers: answered } = await request(`${api.url}${path}`, {
    method,
    headers: acceptEncoding === undefined ? headers : { ...headers, "accept-encoding": acceptEncoding },
  });
  const bytes = Buffer.from(await body.arrayBuffer());
  return {
    encoding: answered["content-encoding"],
    vary: answered.vary,
    length: answered["content-length"],
    bytes,
  };
}

const UNPACK: Record<string, (bytes: Buffer) => Buffer> = { br: brotliDecompressSync, gzip: gunzipSync };

describe("over HTTP", () => {
  test.each([
    ["gzip", "gzip"],
    ["br", "br"],
    ["gzip, deflate, br, zstd", "br"],
    ["gzip;q=1.0, br;q=0", "gzip"],
    ["*", "gzip"],
    ["identity", undefined],
    ["zstd", undefined],
    ["", undefined],
    [undefined, undefined],
  ])("REST and what /docs loads answer Accept-Encoding: %s with %s", async (asked, encoding) => {
    for (const path of ["/api/webhook/processes", "/openapi.json", "/docs/swagger-ui-bundle.js"]) {
      const plain = await get(path);
      const packed = await get(path, asked);
      expect([path, packed.encoding]).toEqual([path, encoding]);
      expect(encoding ? UNPACK[encoding]?.(packed.bytes) : packed.bytes).toEqual(plain.bytes);
      if (!encoding) continue;
      expect(packed.bytes.length, path).toBeLessThan(plain.bytes.length / 2);
      expect(String(packed.vary).toLowerCase(), path).toContain("accept-encoding");
    }
  });

  test("short answers, refusals and images are sent as they are", async () => {
    const connect = "/webhook.v1.WebhookService/ListWebhooks?connect=v1&encoding=json&message=%7B%7D";
    for (const path of ["/api/webhook/list", connect, "/api/webhooks", "/docs/favicon-32x32.png"]) {
      const { encoding, bytes } = await get(path, "gzip, br");
      expect([path, encoding, bytes.length > 0]).toEqual([path, undefined, true]);
    }
  });

  test("what anyone may load is not compressed while it is sent", async () => {
    for (const path of ["/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"]) {
      for (const encoding of ["br", "gzip"]) {
        const answers = await Promise.all([1, 2].map(() => get(path, encoding)));
        // An answer that is compressed while it is sent has no length.
        for (const { length, bytes } of answers) expect([path, length]).toEqual([path, String(bytes.length)]);
      }
    }
  });

  test("HEAD has no body, however it is asked", async () => {
    expect((await get("/api/webhook/processes", "gzip", "HEAD")).bytes).toHaveLength(0);
  });
});
