import { expect, test } from "vitest";
import { useApi } from "../../support/test-api.ts";
import { callHttp } from "../../support/wire.ts";

const api = await useApi();
const LIST = "WebhookService/ListWebhooks";

test.each([
  ...["application/json", "application/json; charset=utf-8", "application/json;charset=UTF8", "text/json"],
  ...[
    'application/json; charset="utf-8"',
    "application/json; odata=verbose; charset=utf-8",
    "Application/JSON ;",
  ],
])("Connect takes JSON as %s", async (type) => {
  expect(await callHttp(api, LIST, { type, body: '{"pageSize":1}' })).toMatchObject({ status: 200 });
});

test.each([
  "application/proto",
  "application/x-protobuf",
  "application/protobuf",
  "application/vnd.google.protobuf",
])("Connect takes binary messages as %s", async (type) => {
  expect(await callHttp(api, LIST, { type, body: Buffer.from([8, 1]) })).toMatchObject({ status: 200 });
});

test.each(["application/json; charset=iso-8859-1", "text/plain", "application/xml", "application/jsonp"])(
  "Connect refuses %s, and says what it takes",
  async (type) => {
    expect(await callHttp(api, LIST, { type, body: "{}" })).toMatchObject({
      status: 415,
      json: { message: expect.stringContaining("Content-Type: application/json") },
    });
  },
);
