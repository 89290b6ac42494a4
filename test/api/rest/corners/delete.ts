import { type Corner, corners, form, json, refusedValues, typed } from "./corner.ts";

const DELETE = "DELETE /webhook";
const send = "send a whole number, at most 9223372036854775807";
const range = "webhookId is out of range: it must be from -9223372036854775808 to 9223372036854775807";
const DIFFERS = "webhookId was sent more than once with different values; send it once";
const NUMBER = `not a whole number; ${send}`;
const noNumber = (value: string) => [value, `webhookId is ${value}, ${NUMBER}`] as const;

const LONG = "9".repeat(5_000);

const values = [
  // Ids that no webhook has: the warning has every digit.
  ...["-1", "4711", 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)].flatMap((id) =>
    [`${id}`, `"${id}"`].map(
      (value) => [value, `there is no webhook ${id}; list the webhooks to find its Id`] as const,
    ),
  ),
  ["null", `webhookId is required; ${send}`],
  ['""', `webhookId is empty; ${send}`],
  ["0", `webhookId must not be 0; ${send}`],
  ['"0"', `webhookId must not be 0; ${send}`],
  ...['"one"', '"0x10"', '"+1"', '"1 "', '"١"', "1.5", "false"].map(noNumber),
  ["9007199254740993.0", NUMBER],
  ["1e18", NUMBER],
  ["1e400", NUMBER],
  ["[1]", `webhookId is a list, ${NUMBER}`],
  ["{}", `webhookId is an object, ${NUMBER}`],
  [`"${LONG}"`, NUMBER],
  ...[2n ** 63n, -(2n ** 63n) - 1n, 2n ** 64n + 1n].flatMap((id) =>
    [`${id}`, `"${id}"`].map((value) => [value, range] as const),
  ),
  [LONG.repeat(10), range],
] as const;

/** `webhookId`: missing, empty, of the wrong type, the edges of 64 bits, repeated, in conflict. */
export const idCorners: Corner[] = [
  ...refusedValues(DELETE, "webhookId", {}, values),
  ...corners(400, [
    ["nothing", DELETE, {}, `webhookId is required; ${send}`],
    ["a property of every object", DELETE, json('{"constructor":1}'), "webhookId is required"],
    ["webhook_id", `${DELETE}?webhook_id=1`, {}, "it was sent as webhook_id, but its name is webhookId"],
    ["WebhookId", DELETE, json('{"WebhookId":1}'), "it was sent as WebhookId, but its name is webhookId"],
    ["other ids in the query and in a form", `${DELETE}?webhookId=1`, form("webhookId=2"), DIFFERS],
    ["two ids in the query", `${DELETE}?webhookId=1&webhookId=2`, {}, DIFFERS],
    [
      "two ids that a double cannot tell apart",
      `${DELETE}?webhookId=9007199254740992`,
      json('{"webhookId":9007199254740993}'),
      DIFFERS,
    ],
    [
      "XML",
      DELETE,
      typed("text/xml", "<a/>"),
      "send JSON with Content-Type: application/json, or a form with",
    ],
    ["a body that is not JSON", DELETE, json("1,"), "the body is not valid JSON"],
    ["too large a body", DELETE, json(" ".repeat(70_000)), "the body is too large; send at most 65536 bytes"],
  ]),
];

/** The ways in which the parameter of delete may come. */
export const deleteWays: Corner[] = corners(200, [
  ["in the query", `${DELETE}?webhookId={id}`],
  ["in a JSON body", DELETE, json('{"webhookId":{id}}')],
  ["in a JSON body as text", DELETE, json('{"webhookId":"{id}"}')],
  ["in a form body", DELETE, form("webhookId={id}")],
  ["in the query and in JSON, with the same value", `${DELETE}?webhookId={id}`, json('{"webhookId":{id}}')],
]);
