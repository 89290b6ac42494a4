import type { RestRequest } from "../../support/test-api.ts";
import { type Corner, jsonText, MEMBERS } from "./corner.ts";

const URL = "https://receiver.example/refused";
const refused = (name: string, request: RestRequest, says: string): Corner => ({
  name,
  method: "POST",
  path: "/webhook",
  request: () => request,
  status: 400,
  says,
});
const taken = (name: string, request: (url: string) => RestRequest): Corner => ({
  name,
  method: "POST",
  path: "/webhook",
  request: ({ url }) => request(url),
  status: 200,
});
const choose = `send the number of one of ${MEMBERS}`;

/** `process`: missing, empty, of the wrong type, unknown, repeated, in conflict. */
export const processCorners: Corner[] = [
  refused("without process", { json: { url: URL } }, `process is required: ${choose}`),
  refused("with process null", { json: { url: URL, process: null } }, `process is required: ${choose}`),
  refused(
    "with process empty in the query",
    { query: { url: URL, process: "" } },
    `process is empty: ${choose}`,
  ),
  refused("with process empty in JSON", { json: { url: URL, process: "" } }, `process is empty: ${choose}`),
  refused("with process empty in a form", { form: { url: URL, process: "" } }, `process is empty: ${choose}`),
  refused(
    "with process of spaces",
    { json: { url: URL, process: "  " } },
    `process is "  ", not a known value`,
  ),
  refused("with process 0", { json: { url: URL, process: 0 } }, `process must not be 0: ${choose}`),
  refused("with process -0", jsonText(`{"url":"${URL}","process":-0}`), `process must not be 0: ${choose}`),
  refused(
    "with an unknown process",
    { query: { url: URL, process: "99" } },
    `process is "99", not a known value: ${choose}`,
  ),
  refused(
    "with process -1",
    { json: { url: URL, process: -1 } },
    `process is -1, not a known value: ${choose}`,
  ),
  refused(
    "with process 2^32+1, which is 1 in 32 bits",
    { json: { url: URL, process: 4_294_967_297 } },
    choose,
  ),
  refused(
    "with process 2^64+1, which is 1 in 64 bits",
    jsonText(`{"url":"${URL}","process":18446744073709551617}`),
    choose,
  ),
  refused(
    "with process as a name",
    { query: { url: URL, process: "OrderDispatched" } },
    `process is "OrderDispatched", not a known value: ${choose}`,
  ),
  refused(
    "with process as a fraction",
    { json: { url: URL, process: 1.5 } },
    "process is 1.5, not a known value",
  ),
  refused(
    "with process in hexadecimal",
    { form: { url: URL, process: "0x1" } },
    'process is "0x1", not a known value',
  ),
  refused(
    "with a plus sign before process",
    { form: { url: URL, process: "+1" } },
    'process is "+1", not a known value',
  ),
  refused("with process true", { json: { url: URL, process: true } }, "process is true, not a known value"),
  refused(
    "with process as a list",
    { json: { url: URL, process: [1] } },
    "process is a list, not a known value",
  ),
  refused("with process as an object", { json: { url: URL, process: { a: 1 } } }, "process is an object"),
  refused(
    "with process[] in the query",
    { query: { url: URL, "process[]": "1" } },
    "process is required; it was sent as process[], but its name is process",
  ),
  refused(
    "with Process",
    { json: { url: URL, Process: 1 } },
    "it was sent as Process, but its name is process",
  ),
  refused(
    "with a text of 40,000 characters for process",
    { form: { url: URL, process: "x".repeat(40_000) } },
    "…",
  ),
  refused(
    "with two processes in the query",
    {
      query: [
        ["process", "1"],
        ["process", "2"],
        ["url", URL],
      ],
    },
    "process is given more than once with different values; give it once",
  ),
  refused(
    "with two processes in a form",
    {
      form: [
        ["process", "1"],
        ["process", "2"],
        ["url", URL],
      ],
    },
    "process is given more than once with different values; give it once",
  ),
  refused(
    "with two processes in JSON",
    jsonText(`{"process":1,"url":"${URL}","process":2}`),
    'the body gives "process" more than once; give it once',
  ),
  refused(
    "with one process in the query and another in JSON",
    { query: { process: "1" }, json: { process: 2, url: URL } },
    "process is given more than once with different values; give it once",
  ),
  refused(
    "with one process in the query and another in a form",
    { query: { process: "1" }, form: { process: "2", url: URL } },
    "process is given more than once with different values; give it once",
  ),
  refused(
    "with a good process in JSON and a bad one in the query",
    { query: { process: "x" }, json: { process: 1, url: URL } },
    'process is "x", not a known value',
  ),
];

/** `url`: missing, empty, of the wrong type, repeated, none that a webhook can have. */
export const urlCorners: Corner[] = [
  refused("without url", { json: { process: 1 } }, "url is required: send a text"),
  refused("with url null", { json: { process: 1, url: null } }, "url is required: send a text"),
  refused("with url empty", { form: { process: "1", url: "" } }, "url is empty: send a text"),
  refused("with url as a number", { json: { process: 1, url: 7 } }, "url is 7: send a text"),
  refused(
    "with url as a number beyond 2^53",
    jsonText('{"process":1,"url":9007199254740993}'),
    "url is 9007199254740993: send a text",
  ),
  refused("with url false", { json: { process: 1, url: false } }, "url is false: send a text"),
  refused("with url as a list", { json: { process: 1, url: [URL] } }, "url is a list: send a text"),
  refused("with url as an object", { json: { process: 1, url: {} } }, "url is an object: send a text"),
  refused(
    "with two urls in a form",
    {
      form: [
        ["process", "1"],
        ["url", URL],
        ["url", `${URL}2`],
      ],
    },
    "url is given more than once with different values; give it once",
  ),
  refused(
    "with url in the wrong case",
    { json: { process: 1, URL } },
    "url is required; it was sent as URL, but its name is url",
  ),
  refused("with a url of one word", { json: { process: 1, url: "receiver" } }, "url is not an absolute URL"),
  refused(
    "with a url of spaces",
    { json: { process: 1, url: "   " } },
    "url begins or ends with white space",
  ),
  refused(
    "with a url of http",
    { json: { process: 1, url: "http://a.example/" } },
    "url must begin with https://, not http://",
  ),
  refused("with a url of another scheme", { json: { process: 1, url: "javascript:alert(1)" } }, "https://"),
  refused("with a url that names a user", { json: { process: 1, url: "https://u:p@a.example/" } }, "user"),
  refused(
    "with a url that has a fragment",
    { json: { process: 1, url: "https://a.example/#x" } },
    "fragment",
  ),
  refused("with a url of a private address", { json: { process: 1, url: "https://10.0.0.1/" } }, "10.0.0.1"),
  refused("with a url of this machine", { json: { process: 1, url: "https://[::1]/" } }, "::1"),
  refused(
    "with a url of this machine as a number",
    { json: { process: 1, url: "https://2130706433/" } },
    "127.0.0.1",
  ),
  refused(
    "with a url of 2,049 characters",
    { json: { process: 1, url: `https://a.example/${"x".repeat(2_031)}` } },
    "2048",
  ),
  refused(
    "with a null character in url",
    { json: { process: 1, url: "https://a.example/\0" } },
    "control characters",
  ),
  refused(
    "with a line break in url",
    { form: { process: "1", url: "https://a.example/\n" } },
    "control characters",
  ),
  refused(
    "with half a character in url",
    jsonText('{"process":1,"url":"https://a.example/\\ud800"}'),
    "url is not valid Unicode text",
  ),
];

/** Bodies that cannot be read, and those that can although they look odd. */
export const bodyCorners: Corner[] = [
  refused("without anything", {}, "process is required"),
  refused("with an empty JSON body", jsonText(""), "process is required"),
  refused("with a JSON body of nothing but spaces", jsonText("  \n "), "the body is not valid JSON"),
  refused(
    "with an empty form",
    { raw: { body: "", type: "application/x-www-form-urlencoded" } },
    "process is required",
  ),
  refused("with null for a body", jsonText("null"), "process is required"),
  refused("with a list for a body", jsonText("[1]"), "the body must be a JSON object with the parameters"),
  refused("with a text for a body", jsonText('"a"'), "the body must be a JSON object with the parameters"),
  refused("with a number for a body", jsonText("1"), "the body must be a JSON object with the parameters"),
  refused("with a body that is not JSON", jsonText("{process: 1}"), "the body is not valid JSON"),
  refused("with a body cut off", jsonText('{"process":1,"url":"https://'), "the body is not valid JSON"),
  refused(
    "with a body of 30,000 nested lists",
    jsonText(`${"[".repeat(30_000)}${"]".repeat(30_000)}`),
    "the body",
  ),
  refused(
    "with a form that is said to be JSON",
    jsonText(`process=1&url=${URL}`),
    "the body is not valid JSON",
  ),
  refused(
    "with JSON that is said to be a form",
    { raw: { body: `{"process":1,"url":"${URL}"}`, type: "application/x-www-form-urlencoded" } },
    "process is required",
  ),
  refused(
    "with a body that is not UTF-8",
    { raw: { body: new Uint8Array([0x22, 0xff, 0x22]), type: "application/json" } },
    "the body is not UTF-8; send JSON as UTF-8",
  ),
  refused(
    "with XML",
    { raw: { body: "<a/>", type: "text/xml" } },
    "send application/json or application/x-www-form-urlencoded",
  ),
  refused(
    "with plain text",
    { raw: { body: `{"process":1,"url":"${URL}"}`, type: "text/plain" } },
    "send application/json or application/x-www-form-urlencoded",
  ),
  refused(
    "with a multipart form",
    { raw: { body: "--a--", type: "multipart/form-data; boundary=a" } },
    "send application/json or application/x-www-form-urlencoded",
  ),
  refused(
    "with a content type that is nonsense",
    { raw: { body: "{}", type: "nonsense" } },
    "send application/json or application/x-www-form-urlencoded",
  ),
  refused(
    "with a body of no content type",
    { raw: { body: new Uint8Array([1]) } },
    "send application/json or application/x-www-form-urlencoded",
  ),
  refused(
    "with a body of 65,537 bytes",
    jsonText(JSON.stringify("x".repeat(65_535))),
    "the body is too large; send at most 65536 bytes",
  ),
  refused(
    "with a form of 70,000 bytes",
    { form: { process: "1", url: URL, extra: "x".repeat(70_000) } },
    "the body is too large; send at most 65536 bytes",
  ),
  refused(
    "with a compressed body",
    { ...jsonText("{}"), headers: { "Content-Encoding": "gzip" } },
    "Content-Encoding is not supported; send the body as it is",
  ),
  refused(
    "with another compression for nothing",
    { headers: { "Content-Encoding": "br" } },
    "Content-Encoding is not supported; send the body as it is",
  ),
  taken("in the query alone", (url) => ({ query: { process: "1", url } })),
  taken("in the query, with an empty body of a type that is not read", (url) => ({
    query: { process: "1", url },
    raw: { body: "", type: "text/plain" },
  })),
  taken("with the same process in the query, twice", (url) => ({
    query: [
      ["process", "1"],
      ["process", "1"],
      ["url", url],
    ],
  })),
  taken("with the same values in the query and in JSON", (url) => ({
    query: { process: "1", url },
    json: { process: 1, url },
  })),
  taken("with the same values in the query and in a form", (url) => ({
    query: { process: "1", url },
    form: { process: "1", url },
  })),
  taken("with process as 1.0", (url) => jsonText(`{"process":1.0,"url":"${url}"}`)),
  taken("with process as text in JSON", (url) => ({ json: { process: "1", url } })),
  taken("with process as 01", (url) => ({ form: { process: "01", url } })),
  taken("beside names that it does not know", (url) => ({
    json: { process: 1, url, page: [{}], ["__proto__"]: 1 },
  })),
  taken("with a body of 65,536 bytes", (url) => jsonText(JSON.stringify({ process: 1, url }).padEnd(65_536))),
  taken("with Content-Encoding: identity", (url) => ({
    json: { process: 1, url },
    headers: { "Content-Encoding": "identity" },
  })),
];
