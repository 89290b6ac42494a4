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
import { afterAll, describe, expect, test } from "vitest";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { reasonOf, refused } from "../../support/grpc-calls.ts";
import { part } from "../../support/parts.ts";
import { startTestApi } from "../../support/test-api.ts";

// The page's files are compressed when it is built.
const api = await startTestApi({ page: (await part("page")).folder });
afterAll(() => api.stop());
const headers = { "X-Service-Key": api.adminKey };

describe.each([
  ["gzip", compressionGzip],
  ["br", compressionBrotli],
])("over gRPC and its like, %s", (name, compression) => {
  const options = { sendCompression: compression, acceptCompression: [compression], compressMinBytes: 1 };
  const overHttp1 = { baseUrl: api.url, httpVersion: "1.1" as const, ...options };
  test.each<[string, Transport]>([
    ["gRPC", createGrpcTransport({ baseUrl: api.grpcUrl, ...options })],
    ["gRPC-Web", createGrpcWebTransport(overHttp1)],
    ["Connect", createConnectTransport(overHttp1)],
  ])(
    "is read and written by %s, and does not get around the limit of a message's size",
    async (protocol, transport) => {
      const webhooks = createClient(WebhookService, transport);
      const encodings: (string | null)[] = [];
      const onHeader = (got: Headers) =>
        void encodings.push(got.get("grpc-encoding") ?? got.get("content-encoding"));
      const url = `https://receiver.example/${protocol}/${name}/${"long/".repeat(300)}`;
      const { webhook } = await webhooks.createWebhook({ process: 2, url }, { headers, onHeader });
      expect(webhook?.url).toBe(url);
      expect((await webhooks.listWebhooks({}, { headers, onHeader })).webhooks).toEqual([webhook]);
      await webhooks.deleteWebhook({ webhookId: webhook?.id as bigint }, { headers, onHeader });
      expect(encodings).toEqual([name, name, name]);

      const large = { process: 1 as const, url: "x".repeat(128 * 1024) };
      const error = await refused(webhooks.createWebhook(large, { headers }));
      expect([error.code, reasonOf(error)]).toEqual([Code.ResourceExhausted, "MESSAGE_TOO_LARGE"]);
    },
  );
});

/** Asks as it is told, and unpacks nothing. */
async function get(path: string, acceptEncoding?: string, method: "GET" | "HEAD" = "GET") {
  const asked = acceptEncoding === undefined ? headers : { ...headers, "accept-encoding": acceptEncoding };
  const answer = await request(`${api.url}${path}`, { method, headers: asked });
  const { "content-encoding": encoding, vary, "content-length": length } = answer.headers;
  return { encoding, vary, length, bytes: Buffer.from(await answer.body.arrayBuffer()) };
}

const UNPACK: Record<string, (bytes: Buffer) => Buffer> = { br: brotliDecompressSync, gzip: gunzipSync };
/** What anyone may load. */
const OPEN = ["/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"];

describe("over HTTP", () => {
  test.each([
    ["gzip", "gzip"],
    ["br", "br"],
    ["gzip, deflate, br, zstd", "br"],
    ["gzip;q=1.0, br;q=0", "gzip"],
    ["*", "gzip"],
    ["identity", undefined],
    ["zstd", undefined],
    [undefined, undefined],
  ])("REST and what /docs loads answer Accept-Encoding: %s with %s", async (asked, encoding) => {
    for (const path of ["/api/webhook/processes", "/openapi.json", "/docs/swagger-ui.css"]) {
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

  test.each(OPEN)("%s, which anyone may load, is not compressed while it is sent", async (path) => {
    // An answer that is compressed while it is sent has no length.
    for (const encoding of ["br", "gzip"])
      for (const { length, bytes } of await Promise.all([get(path, encoding), get(path, encoding)]))
        expect(length).toBe(String(bytes.length));
  });

  test("HEAD has no body, however it is asked", async () => {
    expect((await get("/api/webhook/processes", "gzip", "HEAD")).bytes).toHaveLength(0);
  });
});
