import { createClient, type Transport } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { PROTOCOLS } from "../../support/clients.ts";
import { refused } from "../../support/grpc-calls.ts";
import { useApi } from "../../support/test-api.ts";
import { callGrpc, callHttp } from "../../support/wire.ts";
import { expectGuarded } from "./guarded-answers.ts";

const api = await useApi();

const LIST = "WebhookService/ListWebhooks";
const GET = { verb: "GET", type: null };

describe("no answer may be cached, shared between callers or sniffed as another type:", () => {
  test.each<[what: string, status: number, path: string, call: Parameters<typeof callHttp>[2]]>([
    ["REST", 200, "/api/webhook/list", GET],
    ["REST, packed", 200, "/api/webhook/processes", { ...GET, headers: { "Accept-Encoding": "gzip" } }],
    ["REST without a key", 401, "/api/webhook/list", { ...GET, key: null }],
    ["REST with a body that cannot be read", 400, "/api/webhook", { body: "{" }],
    ["REST with a wrong method", 400, "/api/webhook/list", {}],
    ["REST at a path that is not validly encoded", 400, "/api/%zz", { ...GET, key: null }],
    ["an unknown path", 404, "/nowhere", { ...GET, key: null }],
    ["a page's address without a page", 503, "/", { ...GET, key: null, headers: { Accept: "text/html" } }],
    ["Connect", 200, LIST, {}],
    ["Connect by GET", 200, `${LIST}?connect=v1&encoding=json&message=%7B%7D`, GET],
    ["Connect without a key", 401, LIST, { key: null }],
    ["Connect with an unknown field", 400, LIST, { body: '{"a":1}' }],
    ["Connect with an unknown content type", 415, LIST, { type: "text/plain" }],
    ["Connect with a wrong method", 405, LIST, { verb: "PUT" }],
    ["an unknown method", 404, "WebhookService/No", { key: null }],
    ["/healthz", 200, "/healthz", { ...GET, key: null }],
    ["/readyz", 200, "/readyz", { ...GET, key: null }],
  ])("%s", async (what, status, path, call) => {
    const answer = await callHttp(api, path, call);
    expect(answer.status).toBe(status);
    expectGuarded((name) => answer.headers.get(name), what);
    // Told over TLS only.
    expect(answer.headers.has("strict-transport-security")).toBe(false);
  });

  test.each(PROTOCOLS)("%s, answers and refusals", async (_name, open) => {
    const webhooks = (transport: Transport) => createClient(WebhookService, transport);
    let headers = new Headers();
    const onHeader = (got: Headers) => {
      headers = got;
    };
    await webhooks(open(api)).listWebhooks({}, { onHeader });
    expectGuarded((name) => headers.get(name), "an answer");
    const wrongKey = await refused(webhooks(open(api, "wrong")).listWebhooks({}));
    expectGuarded((name) => wrongKey.metadata.get(name), "a refusal");
    const unread = await refused(createClient(SessionService, open(api)).getSession({}));
    expectGuarded((name) => unread.metadata.get(name), "a refusal without a session");
  });

  test("an unknown method of gRPC", async () => {
    const { headers } = await callGrpc(api, "/no.such.Service/Method", { type: "application/grpc" });
    expectGuarded((name) => headers[name] as string, "an unknown method");
  });
});
