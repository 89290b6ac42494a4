import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { eventTypes, setRegisteredTypes } from "../../../src/contract/catalogue.ts";
import { buildFileSet, registeredTypes } from "../../support/registered-types.ts";
import { startTestApi, type TestApi, useApi } from "../../support/test-api.ts";

const INVOICE = `syntax = "proto3";
package billing.v1;
import "webhook/v1/options.proto";
// An invoice was <b>paid</b>.
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004, alias: "invoice.paid"};
  // The number & more.
  string number = 1 [(webhook.v1.required) = true, (webhook.v1.example) = "<script>"];
  Kind kind = 2;
  enum Kind { KIND_UNSPECIFIED = 0; KIND_FIRST = 1; }
}
`;

const api = await useApi();
let open: TestApi;
beforeAll(async () => {
  open = await startTestApi({ publicCatalogue: true });
});
afterAll(() => open.stop());
afterEach(() => setRegisteredTypes([]));

const PATHS = ["/events", "/events/types/OrderDispatched", "/events/types.ts", "/events/types.py"];

async function get(of: { url: string }, path: string, headers: Record<string, string> = {}) {
  const response = await fetch(of.url + path, { headers, redirect: "manual" });
  return { status: response.status, text: await response.text(), headers: response.headers };
}

test.each(PATHS)("a public catalogue shows %s without a key", async (path) => {
  expect((await get(open, path)).status).toBe(200);
});

test.each(PATHS)("otherwise %s needs a key that may read, or a session", async (path) => {
  expect((await get(api, path)).status).toBe(401);
  const { secret: reader } = await api.key({ permissions: [Permission.READ_ADMINISTRATIVE_DATA] });
  const { secret: other } = await api.key({ permissions: [Permission.PUBLISH_EVENTS] });
  expect((await get(api, path, { "x-service-key": reader })).status).toBe(200);
  expect((await get(api, path, { "x-service-key": other })).status).toBe(403);
  const browser = await get(api, path, { accept: "text/html" });
  expect([browser.status, browser.headers.get("location")]).toEqual([302, "/sign-in"]);
  const ended = await get(api, path, { cookie: `webhook_session=${"a".repeat(43)}` });
  expect(ended.status).toBe(401);
});

test("a page shows the history of an event type", async () => {
  await open.eventTypes.registerEventTypes({
    fileDescriptorSet: buildFileSet({ "billing/v1/invoice.proto": INVOICE }),
  });
  setRegisteredTypes(registeredTypes({ "billing/v1/invoice.proto": INVOICE }));
  const { text } = await get(open, "/events/types/InvoicePaid");
  expect(text).toMatch(/<h2>History<\/h2>\s*<table><tbody>\s*<tr><td>[\d-]{10}<\/td><td>added<\/td>/);
});

test("the file that event types import needs no key", async () => {
  const { status, text } = await get(api, "/events/options.proto");
  expect(status).toBe(200);
  expect(text).toContain("extend google.protobuf.MessageOptions");
});

test("the list has every event type, and each page its properties, sample and schema", async () => {
  const { text } = await get(open, "/events");
  for (const { name, number } of eventTypes()) {
    expect(text).toContain(`<a href="/events/types/${name}">${name}</a>`);
    expect(text).toContain(`<td class="number">${number}</td>`);
    const page = await get(open, `/events/types/${name}`);
    expect(page.text).toContain(`<h1>${name}</h1>`);
    expect(page.text).toContain("<h2>Sample</h2>");
    expect(page.text).toContain("https://json-schema.org/draft/2020-12/schema");
  }
});

test("an event type that is registered while the service runs appears at once, also by its alias, and nothing of it is markup", async () => {
  expect((await get(open, "/events")).text).not.toContain("InvoicePaid");
  expect((await get(open, "/events/types/InvoicePaid")).status).toBe(404);
  setRegisteredTypes(registeredTypes({ "billing/v1/invoice.proto": INVOICE }));
  expect((await get(open, "/events")).text).toContain("invoice.paid");
  for (const name of ["InvoicePaid", "invoice.paid"]) {
    const { text, headers } = await get(open, `/events/types/${name}`);
    expect(text).toContain("An invoice was &lt;b&gt;paid&lt;/b&gt;.");
    expect(text).toContain("The number &amp; more.");
    expect(text).toContain("&lt;script&gt;");
    expect(text).not.toMatch(/<script>|<b>/);
    expect(headers.get("content-security-policy")).toContain("default-src 'none'");
  }
  expect((await get(open, "/events/types.ts")).text).toContain("export interface InvoicePaid {");
  expect((await get(open, "/events/types.py")).text).toContain("class InvoicePaid(Payload):");
});
