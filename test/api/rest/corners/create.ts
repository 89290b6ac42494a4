import {
  type Corner,
  corners,
  form,
  json,
  MEMBERS,
  type Row,
  refusedValues,
  typed,
  URL_LENGTH,
} from "./corner.ts";

const CREATE = "POST /webhook";
const URL = "https://receiver.example/refused";
const choose = `allowed: ${MEMBERS}`;
const unknown = (value: string) => [value, `process is ${value}, not a known value; ${choose}`] as const;
const refused = (rows: readonly Row[]) => corners(400, rows);
const taken = (rows: readonly Row[]) => corners(200, rows);

const processValues = [
  ["null", `process is required; ${choose}`],
  ['""', `process is empty; ${choose}`],
  ["0", `process must not be 0; ${choose}`],
  ["-0", `process must not be 0; ${choose}`],
  ...['"  "', '"99"', "-1", '"OrderDispatched"', "1.5", '"0x1"', '"+1"', "true"].map(unknown),
  // Both are 1 in as many bits.
  unknown(`${2n ** 32n + 1n}`),
  unknown(`${2n ** 64n + 1n}`),
  ["[1]", "process is a list, not a known value"],
  ['{"a":1}', "process is an object, not a known value"],
  [`"${"x".repeat(40_000)}"`, 'process is "xxx'],
] as const;

const DIFFERS = "process was sent more than once with different values; send it once";

/** `process`: missing, empty, of the wrong type, unknown, repeated, in conflict. */
export const processCorners: Corner[] = [
  ...refusedValues(CREATE, "process", { url: URL }, processValues),
  ...refused([
    ["without process", CREATE, json(`{"url":"${URL}"}`), `process is required; ${choose}`],
    [
      "process[] in the query",
      `${CREATE}?process[]=1`,
      {},
      "process is required; it was sent as process[], but its name is process",
    ],
    ["Process", CREATE, json('{"Process":1}'), "it was sent as Process, but its name is process"],
    ["two processes in the query", `${CREATE}?process=1&process=2`, {}, DIFFERS],
    ["two processes in a form", CREATE, form("process=1&process=2"), DIFFERS],
    [
      "two processes in JSON",
      CREATE,
      json(`{"process":1,"url":"${URL}","process":2}`),
      'the body contains "process" more than once; send it once',
    ],
    ["other processes in the query and in JSON", `${CREATE}?process=1`, json('{"process":2}'), DIFFERS],
    ["other processes in the query and in a form", `${CREATE}?process=1`, form("process=2"), DIFFERS],
    [
      "a good process in JSON and a bad one in the query",
      `${CREATE}?process=x`,
      json('{"process":1}'),
      'process is "x", not a known value',
    ],
  ]),
];

const send = "send an https:// URL";
/** URLs that no webhook can have, with the warning. */
const urls = [
  ["", `url is empty; ${send}`],
  ["receiver", "url is not an absolute URL"],
  ["   ", "url begins or ends with white space"],
  ["http://a.example/", "url begins with http://; only https:// is allowed"],
  ["javascript:alert(1)", "url begins with javascript://; only https:// is allowed"],
  ["https://u:p@a.example/", "url contains a user name or password, which is not allowed; remove it"],
  ["https://a.example/#x", "url contains a fragment (#…), which is not allowed; remove it"],
  ["https://10.0.0.1/", "url: 10.0.0.1 is a private address"],
  ["https://[::1]/", "url: ::1 is a loopback address"],
  ["https://2130706433/", "url: 127.0.0.1 is a loopback address"],
  [`https://a.example/${"x".repeat(2_031)}`, "url has 2049 characters; at most 2048 are allowed"],
  ["https://a.example/\0", "url must not hold control characters"],
  ["https://a.example/\n", "url must not hold control characters"],
] as const;
const urlValues = [
  ...urls.map(([url, says]) => [JSON.stringify(url), says] as const),
  ["null", `url is required; ${send}`],
  ...["7", "9007199254740993", "false"].map((value) => [value, `url is ${value}; ${send}`] as const),
  [`["${URL}"]`, `url is a list; ${send}`],
  ["{}", `url is an object; ${send}`],
] as const;

/** `url`: missing, empty, of the wrong type, repeated, none that a webhook can have. */
export const urlCorners: Corner[] = [
  ...refusedValues(CREATE, "url", { process: "1" }, urlValues),
  ...refused([
    ["without url", CREATE, json('{"process":1}'), `url is required; ${send}`],
    [
      "half a character in url",
      CREATE,
      json('{"process":1,"url":"https://a.example/\\ud800"}'),
      "url is not valid Unicode text",
    ],
    [
      "two urls in a form",
      CREATE,
      form(`process=1&url=${URL}&url=${URL}2`),
      "url was sent more than once with different values; send it once",
    ],
    [
      "url in the wrong case",
      CREATE,
      json(`{"process":1,"URL":"${URL}"}`),
      "url is required; it was sent as URL, but its name is url",
    ],
  ]),
];

const NOTHING = "process is required";
const OBJECT = "the body must be a JSON object with the parameters";
const INVALID = "the body is not valid JSON";
const TYPES = "send JSON with Content-Type: application/json, or a form with";
const FORM = "application/x-www-form-urlencoded: send it with Content-Type: application/json";
const LARGE = "the body is too large; send at most 65536 bytes";
const PLAIN = "Content-Encoding is not supported; send the body as it is";
const FORM_UTF8 = "the body is not UTF-8; send the form as UTF-8";
const query = "process=1&url={url}";
const object = '{"process":1,"url":"{url}"}';
/** A form whose URL ends with the given number of bytes that are not UTF-8. */
const notUtf8 = (bytes: number) =>
  form(Buffer.concat([Buffer.from(`process=1&url=${URL}/`), Buffer.alloc(bytes, 0xff)]));

/** Bodies that cannot be read, and those that can although they look odd. */
export const bodyCorners: Corner[] = [
  ...refused([
    ["nothing", CREATE, {}, `${NOTHING}; ${choose}; url is required; ${send}`],
    ["an empty JSON body", CREATE, json(""), NOTHING],
    ["a JSON body of spaces", CREATE, json("  \n "), INVALID],
    ["an empty form", CREATE, form(""), NOTHING],
    ["null for a body", CREATE, json("null"), NOTHING],
    ["a list for a body", CREATE, json("[1]"), OBJECT],
    ["a text for a body", CREATE, json('"a"'), OBJECT],
    ["a number for a body", CREATE, json("1"), OBJECT],
    ["a body that is not JSON", CREATE, json("{process: 1}"), INVALID],
    ["a body cut off", CREATE, json('{"process":1,"url":"https://'), INVALID],
    ["30,000 nested lists", CREATE, json("[".repeat(30_000) + "]".repeat(30_000)), "the body"],
    ["a form sent as JSON", CREATE, json(query), INVALID],
    [
      "JSON sent as a form",
      CREATE,
      form(object),
      `the body looks like JSON, but its Content-Type is ${FORM}`,
    ],
    [
      "JSON sent as plain text",
      CREATE,
      typed("text/plain", object),
      `the Content-Type "text/plain" is not supported; ${TYPES}`,
    ],
    [
      "JSON without a content type",
      CREATE,
      typed(undefined, object),
      `the body has no Content-Type; ${TYPES}`,
    ],
    ["XML", CREATE, typed("text/xml", "<a/>"), TYPES],
    ["a multipart form", CREATE, typed("multipart/form-data; boundary=a", "--a--"), TYPES],
    ["an invalid content type", CREATE, typed("nonsense", "{}"), TYPES],
    [
      "JSON that is not UTF-8",
      CREATE,
      json(Buffer.from([0x22, 0xff, 0x22])),
      "the body is not UTF-8; send JSON as UTF-8",
    ],
    ["a form that is not UTF-8", CREATE, notUtf8(1), FORM_UTF8],
    ["a long form that is not UTF-8", CREATE, notUtf8(60_000), FORM_UTF8],
    ["a body of 65,537 bytes", CREATE, json(`"${"x".repeat(65_535)}"`), LARGE],
    ["a form of 70,000 bytes", CREATE, form(`${query}&extra=${"x".repeat(70_000)}`), LARGE],
    [
      "a compressed body",
      CREATE,
      { head: [...(json("").head ?? []), "Content-Encoding: gzip"], body: "{}" },
      PLAIN,
    ],
    ["a compression without a body", CREATE, { head: ["Content-Encoding: br"] }, PLAIN],
  ]),
];

/** The ways in which parameters of create may come. */
export const createWays: Corner[] = [
  ...taken([
    ["in the query", `${CREATE}?${query}`],
    ["in the query, with an empty JSON body", `${CREATE}?${query}`, json("")],
    ["in the query, with an empty body of another type", `${CREATE}?${query}`, typed("text/plain", "")],
    ["in the query, one of them twice", `${CREATE}?${query}&process=1`],
    ["in a JSON body", CREATE, json(object)],
    ["in a JSON body, the number as text", CREATE, json('{"process":"1","url":"{url}"}')],
    ["in a JSON body, the number as 1.0", CREATE, json('{"process":1.0,"url":"{url}"}')],
    ["in a form body", CREATE, form(query)],
    ["in a form body, the number as 01", CREATE, form("process=01&url={url}")],
    ["in a form body, beside JSON", CREATE, form(`${query}&{"a"=1`)],
    ["half in the query and half in the body", `${CREATE}?process=1`, json('{"url":"{url}"}')],
    ["in the query and in JSON, with the same values", `${CREATE}?${query}`, json(object)],
    ["in the query and in a form, with the same values", `${CREATE}?${query}`, form(query)],
    ["beside unknown ones", CREATE, json('{"process":1,"url":"{url}","page":[{}],"__proto__":1}')],
    ["as a media type ending in +json", CREATE, typed("application/vnd.api+json", object)],
    [
      "as JSON with a charset and a byte order mark",
      CREATE,
      typed("application/json; charset=UTF-8", `\ufeff${object}`),
    ],
    ["in a body of 65,536 bytes", CREATE, json(object.padEnd(65_536 + "{url}".length - URL_LENGTH))],
    ["with Content-Encoding: identity", `${CREATE}?${query}`, { head: ["Content-Encoding: identity"] }],
  ]),
];
