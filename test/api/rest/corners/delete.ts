import type { RestRequest } from "../../../support/test-api.ts";
import { type Corner, jsonText, refusedBy, takenBy } from "./corner.ts";

const refused = refusedBy("DELETE", "/webhook");
const taken = takenBy("DELETE", "/webhook", ({ id }) => id);
const whole = "not a whole number; send a whole number, at most 9223372036854775807";
const range = "webhookId is out of range: it must be from -9223372036854775808 to 9223372036854775807";

/** A webhookId that no webhook has, in each place it can travel in: the number must come back with every digit. */
const unknownIds: Corner[] = [
  "-1",
  "4711",
  "9007199254740992",
  "9007199254740993",
  "9223372036854775807",
  "-9223372036854775808",
].flatMap((id) => {
  const says = `there is no webhook ${id}; list the webhooks to find its Id`;
  return [
    refused(`of webhook ${id} in the query`, { query: { webhookId: id } }, says),
    refused(`of webhook ${id} in a form`, { form: { webhookId: id } }, says),
    refused(`of webhook ${id} in JSON`, jsonText(`{"webhookId":${id}}`), says),
    refused(`of webhook ${id} in JSON as text`, { json: { webhookId: id } }, says),
  ];
});

/** `webhookId`: missing, empty, of the wrong type, the edges of 64 bits, repeated, in conflict. */
export const idCorners: Corner[] = [
  ...unknownIds,
  refused("without webhookId", {}, "webhookId is required; send a whole number, at most 9223372036854775807"),
  refused("with webhookId null", { json: { webhookId: null } }, "webhookId is required"),
  refused("with webhookId empty", { query: { webhookId: "" } }, "webhookId is empty; send a whole number"),
  refused("of webhook 0", { json: { webhookId: 0 } }, "webhookId must not be 0; send a whole number"),
  refused(
    "of webhook 0 in the query",
    { query: { webhookId: "0" } },
    "webhookId must not be 0; send a whole number",
  ),
  refused("of a word", { query: { webhookId: "one" } }, `webhookId is "one", ${whole}`),
  refused(
    "of a word that is a property of every object",
    { json: { constructor: 1 } },
    "webhookId is required",
  ),
  refused("of a hexadecimal number", { query: { webhookId: "0x10" } }, `webhookId is "0x10", ${whole}`),
  refused("of a number with a plus sign", { form: { webhookId: "+1" } }, `webhookId is "+1", ${whole}`),
  refused("of a number with a space", { query: { webhookId: "1 " } }, `webhookId is "1 ", ${whole}`),
  refused("of a number in Arabic digits", { query: { webhookId: "١" } }, whole),
  refused("of a fraction", { json: { webhookId: 1.5 } }, `webhookId is 1.5, ${whole}`),
  refused(
    "of a number beyond 2^53 written as a fraction",
    jsonText('{"webhookId":9007199254740993.0}'),
    whole,
  ),
  refused("of a number beyond 2^53 with an exponent", jsonText('{"webhookId":1e18}'), whole),
  refused("of webhook 1e400", jsonText('{"webhookId":1e400}'), whole),
  refused("of webhook 2^63 in the query", { query: { webhookId: "9223372036854775808" } }, range),
  refused("of webhook 2^63 in JSON", jsonText('{"webhookId":9223372036854775808}'), range),
  refused("of webhook -2^63-1", { form: { webhookId: "-9223372036854775809" } }, range),
  refused("of webhook 2^64+1, which is 1 in 64 bits", jsonText('{"webhookId":18446744073709551617}'), range),
  refused("of a number of 5,000 digits", { query: { webhookId: "9".repeat(5_000) } }, whole),
  refused("of a number of 50,000 digits in JSON", jsonText(`{"webhookId":${"9".repeat(50_000)}}`), range),
  refused("of false", { json: { webhookId: false } }, `webhookId is false, ${whole}`),
  refused("of a list", { json: { webhookId: [1] } }, `webhookId is a list, ${whole}`),
  refused("of an object", { json: { webhookId: {} } }, `webhookId is an object, ${whole}`),
  refused(
    "of webhook_id",
    { query: { webhook_id: "1" } },
    "it was sent as webhook_id, but its name is webhookId",
  ),
  refused("of WebhookId", { json: { WebhookId: 1 } }, "it was sent as WebhookId, but its name is webhookId"),
  refused(
    "of one webhook in the query and another in a form",
    { query: { webhookId: "1" }, form: { webhookId: "2" } },
    "webhookId was sent more than once with different values; send it once",
  ),
  refused(
    "of two webhooks in the query",
    {
      query: [
        ["webhookId", "1"],
        ["webhookId", "2"],
      ],
    },
    "webhookId was sent more than once with different values; send it once",
  ),
  refused(
    "of two webhooks beyond 2^53 that a double cannot tell apart",
    {
      query: { webhookId: "9007199254740992" },
      raw: jsonText('{"webhookId":9007199254740993}').raw as NonNullable<RestRequest["raw"]>,
    },
    "webhookId was sent more than once with different values; send it once",
  ),
  refused(
    "with XML",
    { raw: { body: "<a/>", type: "text/xml" } },
    "send JSON with Content-Type: application/json, or a form with",
  ),
  refused("with a body that is not JSON", jsonText("1,"), "the body is not valid JSON"),
  refused(
    "with a body that is too large",
    jsonText(" ".repeat(70_000)),
    "the body is too large; send at most 65536 bytes",
  ),
  taken("in the query", (id) => ({ query: { webhookId: String(id) } })),
  taken("in a form", (id) => ({ form: { webhookId: String(id) } })),
  taken("in JSON", (id) => jsonText(`{"webhookId":${id}}`)),
  taken("in JSON as text", (id) => ({ json: { webhookId: String(id) } })),
  taken("in the query and in JSON, the same", (id) => ({
    query: { webhookId: String(id) },
    raw: { body: `{"webhookId":${id}}`, type: "application/json" },
  })),
];
