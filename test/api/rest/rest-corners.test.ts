import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { aWebhook } from "../../support/builders.ts";
import { expectDescribed } from "../../support/described-answers.ts";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();

/** What a request has that its text does not say. */
interface More {
  /** Lines of the head, beside Host, the content type, the length of the body and the key. */
  head?: string[];
  /** The lines with the key. One with `{key}` unless given. */
  keys?: string[];
  body?: Buffer;
}

/**
 * A request, and part of the one warning that it is refused with. The request is its method, its path below the prefix, and,
 * if it has a body, the content type (`-` for none) and the body. `{key}` stands for a valid key, `{url}` for a new URL, `{id}` for the
 * id of a webhook, which a double cannot hold, and `{fill}` for the spaces with which the body has 65,536 bytes.
 */
type Corner = readonly [request: string, says?: string, more?: More];

const TYPES: Record<string, string> = {
  JSON: "application/json",
  FORM: "application/x-www-form-urlencoded",
};

let made = 0;
async function filled(request: string): Promise<(text: string) => string> {
  made += 1;
  const id = String(2n ** 53n + 2n * BigInt(made) + 1n);
  if (request.includes("{id}")) await aWebhook().with({ id }).in(api.context.db);
  const url = `https://receiver.example/corners/${made}`;
  return (text) => text.replaceAll("{key}", api.adminKey).replaceAll("{url}", url).replaceAll("{id}", id);
}

/** Sends bytes, since proper HTTP clients refuse to send some of the requests. */
async function send(request: string, prefix: string, more: More) {
  const fill = await filled(request);
  const [, method = "", below = "", type, rest = ""] = /^(\S+) ?(\S*)(?: (\S+) ?(.*))?$/s.exec(request) ?? [];
  const path = prefix + fill(below);
  const text = fill(rest);
  const spaces = " ".repeat(Math.max(0, 65_536 + "{fill}".length - Buffer.byteLength(text)));
  const body = more.body ?? Buffer.from(text.replace("{fill}", spaces));
  const lines = [
    `${method} ${path} HTTP/1.1`,
    "Host: a",
    "Connection: close",
    ...(more.keys ?? ["X-Service-Key: {key}"]).map(fill),
    ...(more.head ?? []),
    ...(type === undefined || type === "-" ? [] : [`Content-Type: ${TYPES[type] ?? type}`]),
    ...(type === undefined ? [] : [`Content-Length: ${body.length}`]),
  ];
  const sent = Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), body]);
  const { status, head, body: answer } = parseRaw(await sendRaw(api.httpPort, sent));
  const header = (name: string) => new RegExp(`^${name}: (.+)$`, "im").exec(head)?.[1];
  expectDescribed({ method, path, status, header, text: answer });
  return { status, text: answer, isHead: method === "HEAD", fill };
}

/** Under one of the prefixes, which lead to the same code. */
const prefixOf = (n: number) => ["/api", "/api/v1", "/api/v2"][n % 3] as string;
const cases = (corners: readonly Corner[]) =>
  corners.map(([request, says = "", more = {}], n) => {
    const title = `${request.slice(0, 80)} ${Object.values(more).join().slice(0, 50)}`;
    return [title, request, says, more, prefixOf(n)] as const;
  });

function testRefused(what: string, status: number, corners: readonly Corner[]): void {
  test.each(cases(corners))(`${what} is ${status}: %s`, async (_title, request, says, more, prefix) => {
    const { isHead, ...answer } = await send(request, prefix, more);
    expect(answer.status).toBe(status);
    if (isHead) return;
    const Warnings = [expect.stringContaining(says)];
    expect(JSON.parse(answer.text)).toEqual({ Success: false, Data: null, Warnings });
  });
}

/** Requests that succeed, each with a part of the answer instead of a warning. */
function testTaken(what: string, corners: readonly Corner[]): void {
  test.each(cases(corners))(`${what}: %s`, async (_title, request, says, more, prefix) => {
    const { status, text, isHead, fill } = await send(request, prefix, more);
    expect([status, text]).toEqual([200, expect.stringContaining(fill(says))]);
    if (!isHead) expect(JSON.parse(text)).toMatchObject({ Success: true, Warnings: [] });
  });
}

/** Values of a parameter, as JSON, beside the others of its operation: in a body of JSON, and texts in the query too. */
const values = (
  line: string,
  name: string,
  others: Record<string, string>,
  rows: readonly (readonly [value: string, says: string])[],
) =>
  rows.flatMap(([value, says]): Corner[] => {
    const rest = JSON.stringify(others).slice(1, -1);
    const inJson: Corner = [`${line} JSON {${rest}${rest && ","}"${name}":${value}}`, says];
    if (!value.startsWith('"')) return [inJson];
    return [inJson, [`${line}?${new URLSearchParams({ ...others, [name]: JSON.parse(value) })}`, says]];
  });

const CREATE = "POST /webhook";
const DELETE = "DELETE /webhook";
const LIST = "GET /webhook/list";
const URL = "https://receiver.example/refused";
const choose =
  "allowed: 1 (OrderDispatched), 2 (DocumentCreated), 3 (StockLevelChanged), 10001 (WebhookFailing), 10002 (WebhookRecovered), 10003 (WebhookDisabled), 10004 (DeliveryFailed), 10005 (WebhookFilterStopped), 10006 (IncidentOpened), 10007 (IncidentClosed)";
const https = "send an https:// URL";
const number = "not a whole number; send a whole number, at most 9223372036854775807";
const range = "webhookId is out of range: it must be from -9223372036854775808 to 9223372036854775807";
const differ = (name: string) => `${name} was sent more than once with different values; send it once`;
const NOTHING = "process is required";
const INVALID = "the body is not valid JSON";
const SUPPORTED = "send JSON with Content-Type: application/json, or a form with";

testRefused("§4.2: the parameter process of create", 400, [
  ...values(CREATE, "process", { url: URL }, [
    ["null", `process is required; ${choose}`],
    ['""', `process is empty; ${choose}`],
    ["0", `process must not be 0; ${choose}`],
    ...['"99"', "-1", '"OrderDispatched"', "1.5", '"0x1"', '"+1"', "true"].map(
      (value) => [value, `process is ${value}, not a known value`] as const,
    ),
    // Both are 1 in as many bits.
    ...[2n ** 32n + 1n, 2n ** 64n + 1n].map((value) => [`${value}`, `process is ${value}, not`] as const),
    ["[1]", "process is a list, not a known value"],
  ]),
  [`${CREATE} JSON {"process":"${"x".repeat(40_000)}"}`, 'process is "xxx'],
  [`${CREATE} JSON {"url":"${URL}"}`, `process is required; ${choose}`],
  [`${CREATE}?process[]=1`, "process is required; it was sent as process[], but its name is process"],
  [`${CREATE} JSON {"Process":1}`, "it was sent as Process, but its name is process"],
  [`${CREATE}?process=1&process=2`, differ("process")],
  [`${CREATE} JSON {"process":1,"process":2}`, 'the body contains "process" more than once; send it once'],
  [`${CREATE}?process=1 JSON {"process":2}`, differ("process")],
  [`${CREATE}?process=1 FORM process=2`, differ("process")],
  [`${CREATE}?process=x JSON {"process":1}`, 'process is "x", not a known value'],
]);

testRefused("§4.2: the parameter url of create", 400, [
  ...values(CREATE, "url", { process: "1" }, [
    ['""', `url is empty; ${https}`],
    ['"receiver"', "url is not an absolute URL"],
    ['"http://a.example/"', "url begins with http://; only https:// is allowed"],
    ['"javascript:alert(1)"', "url begins with javascript://; only https:// is allowed"],
    [
      '"https://u:p@a.example/"',
      "url contains a user name or password, which is not allowed; remove it, and set it as Basic",
    ],
    ['"https://a.example/#x"', "url contains a fragment (#…), which is not allowed; remove it"],
    ['"https://10.0.0.1/"', "url: 10.0.0.1 is a private address"],
    ['"https://[::1]/"', "url: ::1 is a loopback address"],
    ['"https://2130706433/"', "url: 127.0.0.1 is a loopback address"],
    [`"https://a.example/${"x".repeat(2_031)}"`, "url has 2049 characters; at most 2048 are allowed"],
    [
      '"https://a.example/\\u0000"',
      "url contains control characters, which are not allowed; remove them or percent-encode them",
    ],
    ["null", `url is required; ${https}`],
    ...["7", "9007199254740993", "false"].map((value) => [value, `url is ${value}; ${https}`] as const),
    [`["${URL}"]`, `url is a list; ${https}`],
  ]),
  [`${CREATE} JSON {"process":1}`, `url is required; ${https}`],
  [`${CREATE} JSON {"process":1,"url":"https://a.example/\\ud800"}`, "url is not valid Unicode text"],
  [`${CREATE} FORM process=1&url=${URL}&url=${URL}2`, differ("url")],
  [`${CREATE} JSON {"process":1,"URL":"${URL}"}`, "url is required; it was sent as URL, but its name is url"],
]);

const OBJECT = '{"process":1,"url":"{url}"}';
const PLAIN =
  "Content-Encoding is not supported; send the body as it is, without that header, or as gzip, br, deflate";
const LARGE = "the body is too large; send at most 65536 bytes";
const COMPRESSED = gzipSync(`{"process":1,"url":"${URL}/gzip"}`);
const BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW";
const multipart = (...parts: string[]) => {
  const heads = parts.map((part) => `--${BOUNDARY}\r\nContent-Disposition: form-data; ${part}\r\n`);
  return Buffer.from(`${heads.join("")}--${BOUNDARY}--\r\n`);
};
const MULTIPART = `multipart/form-data;boundary=${BOUNDARY}`;
testRefused("§4.2: a body of create that cannot be read", 400, [
  [CREATE, `${NOTHING}; ${choose}; url is required; ${https}`],
  [`${CREATE} JSON`, NOTHING],
  [`${CREATE} JSON   \n `, INVALID],
  [`${CREATE} JSON null`, NOTHING],
  ...["[1]", '"a"', "1"].map(
    (body): Corner => [`${CREATE} JSON ${body}`, "the body must be a JSON object with the parameters"],
  ),
  ...["{process: 1}", '{"process":1,"url":"https://', "process=1&url={url}"].map(
    (body): Corner => [`${CREATE} JSON ${body}`, INVALID],
  ),
  [`${CREATE} JSON ${"[".repeat(30_000)}${"]".repeat(30_000)}`, "the body"],
  [
    `${CREATE} FORM ${OBJECT}`,
    "the body looks like JSON, but its Content-Type is application/x-www-form-url",
  ],
  [`${CREATE} text/plain ${OBJECT}`, `the Content-Type "text/plain" is not supported; ${SUPPORTED}`],
  [`${CREATE} - process=1&url={url}`, `the body has no Content-Type; ${SUPPORTED}`],
  [`${CREATE} application/xml <a/>`, `the Content-Type "application/xml" is not supported; ${SUPPORTED}`],
  [`${CREATE} multipart/form-data;boundary=a --b--`, "the body is not valid multipart/form-data"],
  [`${CREATE} multipart/form-data x`, "the body is not valid multipart/form-data"],
  [
    `${CREATE} ${MULTIPART}`,
    "url is an object; send an https:// URL",
    { body: multipart('name="process"\r\n\r\n1', 'name="url"; filename="url"\r\n\r\nhttps://a.example/') },
  ],
  [`${CREATE} JSON`, "the body is not UTF-8; send JSON as UTF-8", { body: Buffer.from([0x22, 0xff, 0x22]) }],
  ...[1, 60_000].map((bytes): Corner => {
    const body = Buffer.concat([Buffer.from(`process=1&url=${URL}/`), Buffer.alloc(bytes, 0xff)]);
    return [`${CREATE} FORM`, "the body is not UTF-8; send the form as UTF-8", { body }];
  }),
  [`${CREATE} JSON {}`, "the message is not valid gzip", { head: ["Content-Encoding: gzip"] }],
  [`${CREATE} JSON {}`, PLAIN, { head: ["Content-Encoding: zstd"] }],
  [CREATE, PLAIN, { head: ["Content-Encoding: gzip, br"] }],
  [CREATE, NOTHING, { head: ["Content-Encoding: br"] }],
]);

testRefused("§7.4: a body of create that is too large", 413, [
  [`${CREATE} JSON ${" ".repeat(65_537)}`, LARGE],
  [`${CREATE} FORM a=${"x".repeat(70_000)}`, LARGE],
  [
    `${CREATE} JSON`,
    "at most 65536 bytes",
    { head: ["Content-Encoding: gzip"], body: gzipSync(" ".repeat(65_537)) },
  ],
]);

const QUERY = "process=1&url={url}";
testTaken(
  "§4.2.3: parameters of create are taken",
  [
    `${CREATE}?${QUERY}`,
    `${CREATE}?${QUERY} JSON`,
    `${CREATE}?${QUERY}&process=1`,
    `${CREATE} JSON ${OBJECT}`,
    `${CREATE} JSON {"process":"1","url":"{url}"}`,
    `${CREATE} JSON {"process":1.0,"url":"{url}"}`,
    `${CREATE} FORM ${QUERY}`,
    `${CREATE} FORM process=01&url={url}`,
    `${CREATE} FORM ${QUERY}&{"a"=1`,
    `${CREATE}?process=1 JSON {"url":"{url}"}`,
    `${CREATE}?${QUERY} JSON ${OBJECT}`,
    `${CREATE} JSON {"process":1,"url":"{url}","page":[{}],"__proto__":1}`,
    `${CREATE} application/vnd.api+json ${OBJECT}`,
    `${CREATE} application/json;charset=UTF-8 \ufeff${OBJECT}`,
    `${CREATE} JSON ${OBJECT}{fill}`,
    `${CREATE} text/json ${OBJECT}`,
    `${CREATE} - ${OBJECT}`,
    `${CREATE} application/x-www-form-urlencoded;charset=ISO-8859-1 ${QUERY}`,
  ].map((request) => [request, '"WebhookProcess":"OrderDispatched","Url":"{url}"']),
);

testTaken("§4.2.3: other forms of a body of create are taken", [
  [`${CREATE} JSON`, "/gzip", { head: ["Content-Encoding: gzip"], body: COMPRESSED }],
  [`${CREATE} JSON`, "/gzip", { head: ["Content-Encoding: x-gzip"], body: COMPRESSED }],
  [
    `${CREATE} application/json;charset=ISO-8859-1`,
    "/größe",
    { body: Buffer.from(`{"process":1,"url":"${URL}/größe"}`, "latin1") },
  ],
  [
    `${CREATE} ${MULTIPART}`,
    "/multipart",
    { body: multipart('name="process"\r\n\r\n1', `name="url"\r\n\r\n${URL}/multipart`) },
  ],
]);

testRefused("§4.3: the parameter of delete", 400, [
  ...values(DELETE, "webhookId", {}, [
    // Ids that no webhook has: the warning has every digit.
    ...["-1", 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)].flatMap((id) =>
      [`${id}`, `"${id}"`].map((value) => [value, `there is no webhook ${id}; list the webhooks`] as const),
    ),
    ["null", "webhookId is required; send a whole number, at most 9223372036854775807"],
    ['""', "webhookId is empty; send a whole number"],
    ["0", "webhookId must not be 0; send a whole number"],
    ...['"one"', '"0x10"', '"+1"', '"1 "', '"١"', "1.5", "false"].map(
      (value) => [value, `webhookId is ${value}, ${number}`] as const,
    ),
    ...["9007199254740993.0", "1e18", "1e400"].map((value) => [value, number] as const),
    ["[1]", `webhookId is a list, ${number}`],
    [`"${"9".repeat(5_000)}"`, number],
    ...[2n ** 63n, -(2n ** 63n) - 1n, 2n ** 64n + 1n].flatMap((id) =>
      [`${id}`, `"${id}"`].map((value) => [value, range] as const),
    ),
    ["9".repeat(50_000), range],
  ]),
  [DELETE, "webhookId is required"],
  [`${DELETE} JSON {"constructor":1}`, "webhookId is required"],
  [`${DELETE}?__proto__=1&constructor=2&toString=3`, "webhookId is required"],
  [`${DELETE}?webhookId`, "webhookId is empty"],
  [`${DELETE}?webhookId=%zz`, 'webhookId is "%zz", not a whole number'],
  [`${DELETE}?webhook_id=1`, "it was sent as webhook_id, but its name is webhookId"],
  [`${DELETE}?webhookId=1 FORM webhookId=2`, differ("webhookId")],
  [`${DELETE}?webhookId=1&webhookId=2`, differ("webhookId")],
  // A double cannot tell them apart.
  [`${DELETE}?webhookId=9007199254740992 JSON {"webhookId":9007199254740993}`, differ("webhookId")],
  [`${DELETE} JSON 1,`, INVALID],
]);

testTaken(
  "§4.3.3: the parameter of delete is taken, and Data is the deleted webhook",
  [
    `${DELETE}?webhookId={id}`,
    `${DELETE} JSON {"webhookId":{id}}`,
    `${DELETE} FORM webhookId={id}`,
    `${DELETE}?webhookId={id} JSON {"webhookId":{id}}`,
  ].map((request) => [request, '"Data":{"Id":{id},']),
);

describe("§4: paths and methods:", () => {
  const takes = (path: string, methods: string, allowed: string) =>
    methods
      .split(" ")
      .map((method): Corner => [`${method} ${path}`, `does not take ${method}; use ${allowed}`]);
  testRefused("what an operation's path does not take", 400, [
    ...takes("/webhook/list", "POST PUT PATCH DELETE OPTIONS TRACE PROPFIND QUERY", "GET, HEAD"),
    ...takes("/webhook", "GET PUT PATCH OPTIONS TRACE PROPFIND QUERY", "POST, DELETE"),
    ["HEAD /webhook"],
    ["PUT /webhook JSON {]", "does not take PUT"],
    ["GET /%zz", "percent-encoded"],
    [`${DELETE}/?webhookId=4711`, "there is no webhook 4711"],
    [
      CREATE,
      NOTHING,
      {
        head: ["Content-Type: application/json", "Transfer-Encoding: chunked"],
        body: Buffer.from("2\r\n{}\r\n0\r\n\r\n"),
      },
    ],
  ]);

  const LIKE_NONE = ["", "/webhook/list/1", "/Webhook/list", "//webhook/list", "/webhook/list//"];
  testRefused("what is no path", 404, [
    ["HEAD /webhooks"],
    ...["POST", "DELETE", "TRACE", "QUERY"].map((method): Corner => [`${method} /webhooks`, "/openapi.json"]),
    ...[...LIKE_NONE, "/webhook%2Flist", "/webhook;a=b/list", `/${"x".repeat(5_000)}`].map(
      (path): Corner => [`GET ${path}`, "all paths: /openapi.json"],
    ),
  ]);

  testTaken("is answered", [
    [`${LIST}/`],
    ["GET /webhook/%6cist"],
    [`${LIST}?page=2&page=3`],
    ["HEAD /webhook/list"],
    // A body is not read.
    [`${LIST} JSON {]`],
    [LIST, "", { head: ["Upgrade: websocket", "Content-Encoding: identity"] }],
  ]);
});

describe("§5.1, §5.6: the header of the key:", () => {
  const keyed = (says: string, ...keys: string[]): Corner => [LIST, says, { keys }];
  testTaken("a spelling that is taken", [
    ...["X-Service-Key", "x-service-key", "X-SERVICE-KEY"].map((name) => keyed("", `${name}: {key}`)),
    keyed("", "X-Service-Key: \t {key}  "),
    keyed("", "X-Service-Key: {key}", "Authorization: Bearer other"),
  ]);

  const MISSING = "the header X-Service-Key is missing: send your API key in it";
  const UNKNOWN = "the API key in X-Service-Key is unknown or revoked";
  const SEVERAL = "X-Service-Key contains more than one key; send exactly one";
  const keyless = (request: string): Corner => [request, MISSING, { keys: [] }];
  testRefused("any other", 401, [
    keyed(MISSING, "X-Service-Key:"),
    keyed(MISSING, "Authorization: Bearer {key}"),
    ...["nobody", "k".repeat(8_000), "\u00e9\u00ff", "' or 1=1 --"].map((key) =>
      keyed(UNKNOWN, `X-Service-Key: ${key}`),
    ),
    keyed(SEVERAL, "X-Service-Key: {key}", "X-Service-Key: other"),
    keyed(SEVERAL, "X-Service-Key: {key}", "x-service-key: {key}"),
    keyed(SEVERAL, "X-Service-Key: {key}, {key}"),
    keyed("contains a scheme before the key; send only the key", "X-Service-Key: Bearer {key}"),
    keyless(LIST),
    keyless(`${LIST}?X-Service-Key={key}`),
    // What is wrong with the rest of a request is told to those who may make it, and to no one else.
    keyless(CREATE),
    keyless(`${CREATE} JSON {`),
    keyless(`${CREATE} JSON ${" ".repeat(70_000)}`),
    keyless(`${DELETE}?webhookId=one`),
    [`${CREATE} text/xml <a/>`, UNKNOWN, { keys: ["X-Service-Key: nobody"] }],
  ]);
});
