import { type Corner, jsonText, MEMBERS, refusedBy } from "./corner.ts";

const URL = "https://receiver.example/refused";
const refused = refusedBy("POST", "/webhook");
const choose = `allowed: ${MEMBERS}`;

/** `process`: missing, empty, of the wrong type, unknown, repeated, in conflict. */
export const processCorners: Corner[] = [
  refused("without process", { json: { url: URL } }, `process is required; ${choose}`),
  refused("with process null", { json: { url: URL, process: null } }, `process is required; ${choose}`),
  refused(
    "with process empty in the query",
    { query: { url: URL, process: "" } },
    `process is empty; ${choose}`,
  ),
  refused("with process empty in JSON", { json: { url: URL, process: "" } }, `process is empty; ${choose}`),
  refused("with process empty in a form", { form: { url: URL, process: "" } }, `process is empty; ${choose}`),
  refused(
    "with process of spaces",
    { json: { url: URL, process: "  " } },
    `process is "  ", not a known value`,
  ),
  refused("with process 0", { json: { url: URL, process: 0 } }, `process must not be 0; ${choose}`),
  refused("with process -0", jsonText(`{"url":"${URL}","process":-0}`), `process must not be 0; ${choose}`),
  refused(
    "with an unknown process",
    { query: { url: URL, process: "99" } },
    `process is "99", not a known value; ${choose}`,
  ),
  refused(
    "with process -1",
    { json: { url: URL, process: -1 } },
    `process is -1, not a known value; ${choose}`,
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
    `process is "OrderDispatched", not a known value; ${choose}`,
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
    "process was sent more than once with different values; send it once",
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
    "process was sent more than once with different values; send it once",
  ),
  refused(
    "with two processes in JSON",
    jsonText(`{"process":1,"url":"${URL}","process":2}`),
    'the body contains "process" more than once; send it once',
  ),
  refused(
    "with one process in the query and another in JSON",
    { query: { process: "1" }, json: { process: 2, url: URL } },
    "process was sent more than once with different values; send it once",
  ),
  refused(
    "with one process in the query and another in a form",
    { query: { process: "1" }, form: { process: "2", url: URL } },
    "process was sent more than once with different values; send it once",
  ),
  refused(
    "with a good process in JSON and a bad one in the query",
    { query: { process: "x" }, json: { process: 1, url: URL } },
    'process is "x", not a known value',
  ),
];
