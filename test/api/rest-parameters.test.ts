import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type RestRequest, startTestApi, type TestApi } from "../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

let paths = 0;
const freshUrl = () => `https://receiver.example/parameters/${++paths}`;
const MEMBERS = "1 (OrderDispatched), 2 (DocumentCreated), 3 (StockLevelChanged)";

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

  const url = "https://receiver.example/refused";
  const refusals: [string, RestRequest, string][] = [
    ["process is missing", { json: { url } }, `process is required: send the number of one of ${MEMBERS}`],
    ["process is null", { json: { url, process: null } }, "process is required"],
    [
      "process is empty",
      { query: { url, process: "" } },
      `process is empty: send the number of one of ${MEMBERS}`,
    ],
    ["process is 0", { json: { url, process: 0 } }, MEMBERS],
    [
      "process is a name",
      { query: { url, process: "OrderDispatched" } },
      `process is "OrderDispatched", not a known value: send the number of one of ${MEMBERS}`,
    ],
    ["process is unknown", { query: { url, process: "99" } }, MEMBERS],
    ["process is negative", { query: { url, process: "-1" } }, MEMBERS],
    ["process is beyond 32 bits", { query: { url, process: "4294967297" } }, MEMBERS],
    ["process is a fraction", { json: { url, process: 1.5 } }, "process is 1.5"],
    ["process is true", { json: { url, process: true } }, "process is true"],
    ["process is a list", { json: { url, process: [1] } }, "process is a list"],
    ["process is an object", { json: { url, process: { a: 1 } } }, "process is an object"],
    ["url is missing", { json: { process: 1 } }, "url is required"],
    ["url is empty", { form: { process: "1", url: "" } }, "url is empty"],
    ["url is a number", { json: { process: 1, url: 7 } }, "url is 7"],
    ["url is not an address", { json: { process: 1, url: "receiver" } }, "url is not an absolute URL"],
    ["url is too long", { json: { process: 1, url: `https://a.example/${"x".repeat(2_048)}` } }, "2048"],
    ["url names a user", { json: { process: 1, url: "https://u:p@a.example/" } }, "user"],
    ["url has a fragment", { json: { process: 1, url: "https://a.example/#x" } }, "fragment"],
    ["url is a private address", { json: { process: 1, url: "https://10.0.0.1/" } }, "10.0.0.1"],
    [
      "url holds a null character",
      { json: { process: 1, url: "https://a.example/\0" } },
      "control characters",
    ],
    [
      "url holds half a character",
      { raw: { body: '{"process":1,"url":"https://a.example/\\ud800"}', type: "application/json" } },
      "url",
    ],
    [
      "url is in the wrong case",
      { json: { process: 1, Url: url } },
      "url is required; it was sent as Url, but its name is url",
    ],
    [
      "process is repeated in the query",
      {
        query: [
          ["process", "1"],
          ["process", "2"],
          ["url", url],
        ],
      },
      "process is given more than once with different values",
    ],
    [
      "url is repeated in the form",
      {
        form: [
          ["process", "1"],
          ["url", url],
          ["url", `${url}2`],
        ],
      },
      "url is given more than once",
    ],
    [
      "query and body disagree",
      { query: { process: "1" }, json: { process: 2, url } },
      "process is given more than once with different values",
    ],
    [
      "the body repeats a name",
      { raw: { body: `{"process":1,"url":"${url}","url":"${url}2"}`, type: "application/json" } },
      'the body gives "url" more than once',
    ],
    [
      "the body is a list",
      { raw: { body: "[1]", type: "application/json" } },
      "the body must be a JSON object",
    ],
    [
      "the body is a text",
      { raw: { body: '"a"', type: "application/json" } },
      "the body must be a JSON object",
    ],
    [
      "the body is not JSON",
      { raw: { body: "{process: 1}", type: "application/json" } },
      "the body is not valid JSON",
    ],
    [
      "the body is not UTF-8",
      { raw: { body: new Uint8Array([0x22, 0xff, 0x22]), type: "application/json" } },
      "UTF-8",
    ],
    [
      "the content type is another",
      { raw: { body: "<a/>", type: "text/xml" } },
      "send application/json or application/x-www-form-urlencoded",
    ],
    ["the content type is nonsense", { raw: { body: "{}", type: "nonsense" } }, "content type"],
    ["the content type is missing", { raw: { body: new Uint8Array([1]) } }, "content type"],
    ["the body is too large", { json: { process: 1, url, extra: "x".repeat(70_000) } }, "65536 bytes"],
  ];
  test.each(refusals)("are refused when %s", async (_case, request, message) => {
    const { status, envelope } = await api.rest("POST", "/api/webhook", request);
    expect(status).toBe(400);
    expect(envelope).toEqual({ Success: false, Data: null, Warnings: [expect.stringContaining(message)] });
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

  const refusals: [string, RestRequest, string][] = [
    ["is missing", {}, "webhookId is required"],
    ["is empty", { query: { webhookId: "" } }, "webhookId is empty"],
    ["is 0", { json: { webhookId: 0 } }, "webhookId must not be 0"],
    ["is a word", { query: { webhookId: "one" } }, 'webhookId is "one", not a whole number'],
    ["is hexadecimal", { query: { webhookId: "0x10" } }, "not a whole number"],
    ["is a fraction", { json: { webhookId: 1.5 } }, "webhookId is 1.5, not a whole number"],
    ["is 2^63", { query: { webhookId: "9223372036854775808" } }, "webhookId is out of range"],
    ["is beyond any number", { query: { webhookId: "9".repeat(5_000) } }, "not a whole number"],
    ["is 1e400", { raw: { body: '{"webhookId": 1e400}', type: "application/json" } }, "not a whole number"],
    ["is false", { json: { webhookId: false } }, "webhookId is false"],
    ["is written with an underscore", { query: { webhook_id: "1" } }, "its name is webhookId"],
    ["is given twice", { query: { webhookId: "1" }, json: { webhookId: 2 } }, "more than once"],
  ];
  test.each(refusals)("is refused when it %s", async (_case, request, message) => {
    const { status, envelope } = await api.rest("DELETE", "/api/webhook", request);
    expect(status).toBe(400);
    expect(envelope).toEqual({ Success: false, Data: null, Warnings: [expect.stringContaining(message)] });
  });
});

test("a list takes a body and unknown parameters, and heeds neither", async () => {
  const { status } = await api.rest("GET", "/api/webhook/list", { query: { page: "2" } });
  expect(status).toBe(200);
});
