import type { RestRequest } from "../../../support/test-api.ts";
import { type Corner, jsonText, refusedBy, takenBy } from "./corner.ts";

const URL = "https://receiver.example/refused";
const refused = refusedBy("POST", "/webhook");
const taken = takenBy("POST", "/webhook", ({ url }) => url);

/** A form whose URL ends with the given number of bytes that are not UTF-8. */
function notUtf8(bytes: number): RestRequest {
  const body = Buffer.concat([Buffer.from(`process=1&url=${URL}/`), Buffer.alloc(bytes, 0xff)]);
  return { raw: { body, type: "application/x-www-form-urlencoded" } };
}

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
  refused("with a form that is not UTF-8", notUtf8(1), "the body is not UTF-8; send the form as UTF-8"),
  refused(
    "with a long form that is not UTF-8",
    notUtf8(60_000),
    "the body is not UTF-8; send the form as UTF-8",
  ),
  refused(
    "with XML",
    { raw: { body: "<a/>", type: "text/xml" } },
    "send JSON with Content-Type: application/json, or a form with",
  ),
  refused(
    "with plain text",
    { raw: { body: `{"process":1,"url":"${URL}"}`, type: "text/plain" } },
    "send JSON with Content-Type: application/json, or a form with",
  ),
  refused(
    "with a multipart form",
    { raw: { body: "--a--", type: "multipart/form-data; boundary=a" } },
    "send JSON with Content-Type: application/json, or a form with",
  ),
  refused(
    "with a content type that is nonsense",
    { raw: { body: "{}", type: "nonsense" } },
    "send JSON with Content-Type: application/json, or a form with",
  ),
  refused(
    "with a body of no content type",
    { raw: { body: new Uint8Array([1]) } },
    "send JSON with Content-Type: application/json, or a form with",
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
