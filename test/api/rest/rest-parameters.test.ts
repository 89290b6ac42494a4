import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type RestRequest, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

let paths = 0;
const freshUrl = () => `https://receiver.example/parameters/${++paths}`;

describe("§4.2.3: parameters of create", () => {
  const ways: [string, (url: string) => RestRequest][] = [
    ["in the query", (url) => ({ query: { process: "1", url } })],
    ["in a JSON body", (url) => ({ json: { process: 1, url } })],
    ["in a JSON body, the number as text", (url) => ({ json: { process: "1", url } })],
    ["in a form body", (url) => ({ form: { process: "1", url } })],
    ["half in the query and half in the body", (url) => ({ query: { process: "1" }, json: { url } })],
    ["in both, with the same values", (url) => ({ query: { process: "1", url }, json: { process: 1, url } })],
    ["beside unknown ones", (url) => ({ json: { process: 1, url, extra: [1], __proto__: { a: 1 } } })],
    [
      "in the query, with an empty JSON body",
      (url) => ({ query: { process: "1", url }, raw: { body: "", type: "application/json" } }),
    ],
    [
      "as a media type ending in +json",
      (url) => ({ raw: { body: JSON.stringify({ process: 1, url }), type: "application/vnd.api+json" } }),
    ],
    [
      "as JSON with a charset and a byte order mark",
      (url) => ({
        raw: {
          body: `\ufeff${JSON.stringify({ process: 1, url })}`,
          type: "application/json; charset=UTF-8",
        },
      }),
    ],
  ];
  test.each(ways)("§4.2.3: are taken %s", async (_way, request) => {
    const url = freshUrl();
    const { status, envelope } = await api.rest("POST", "/api/webhook", request(url));
    expect(envelope.Warnings).toEqual([]);
    expect(status).toBe(200);
    expect(envelope.Data).toMatchObject({ WebhookProcess: "OrderDispatched", Url: url });
  });

  test("are all told about in one answer", async () => {
    const { envelope } = await api.rest("POST", "/api/webhook");
    expect(envelope.Warnings[0]).toMatch(/process is required.*url is required/);
  });
});

describe("§4.3.3: the parameter of delete", () => {
  const ways: [string, (id: number) => RestRequest][] = [
    ["in the query", (id) => ({ query: { webhookId: String(id) } })],
    ["in a JSON body", (id) => ({ json: { webhookId: id } })],
    ["in a JSON body as text", (id) => ({ json: { webhookId: String(id) } })],
    ["in a form body", (id) => ({ form: { webhookId: String(id) } })],
  ];
  test.each(ways)("§4.3.3: is taken %s, and Data is the deleted webhook", async (_way, request) => {
    const made = await api.rest("POST", "/api/webhook", { json: { process: 1, url: freshUrl() } });
    const { status, envelope } = await api.rest("DELETE", "/api/webhook", request(made.envelope.Data.Id));
    expect(status).toBe(200);
    expect(envelope.Data).toMatchObject({ Id: made.envelope.Data.Id, Url: made.envelope.Data.Url });
  });
});

test("a list takes a body and unknown parameters, and heeds neither", async () => {
  const { status } = await api.rest("GET", "/api/webhook/list", { query: { page: "2" } });
  expect(status).toBe(200);
});
