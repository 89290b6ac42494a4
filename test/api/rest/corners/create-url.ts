import { type Corner, jsonText, refusedBy } from "./corner.ts";

const URL = "https://receiver.example/refused";
const refused = refusedBy("POST", "/webhook");

/** `url`: missing, empty, of the wrong type, repeated, none that a webhook can have. */
export const urlCorners: Corner[] = [
  refused("without url", { json: { process: 1 } }, "url is required; send an https:// URL"),
  refused("with url null", { json: { process: 1, url: null } }, "url is required; send an https:// URL"),
  refused("with url empty", { form: { process: "1", url: "" } }, "url is empty; send an https:// URL"),
  refused("with url as a number", { json: { process: 1, url: 7 } }, "url is 7; send an https:// URL"),
  refused(
    "with url as a number beyond 2^53",
    jsonText('{"process":1,"url":9007199254740993}'),
    "url is 9007199254740993; send an https:// URL",
  ),
  refused("with url false", { json: { process: 1, url: false } }, "url is false; send an https:// URL"),
  refused("with url as a list", { json: { process: 1, url: [URL] } }, "url is a list; send an https:// URL"),
  refused(
    "with url as an object",
    { json: { process: 1, url: {} } },
    "url is an object; send an https:// URL",
  ),
  refused(
    "with two urls in a form",
    {
      form: [
        ["process", "1"],
        ["url", URL],
        ["url", `${URL}2`],
      ],
    },
    "url was sent more than once with different values; send it once",
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
    "url begins with http://; only https:// is allowed",
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
