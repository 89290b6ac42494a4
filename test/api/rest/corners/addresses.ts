import { type Corner, corners, json, type Row } from "./corner.ts";

const METHODS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "QUERY"];
const LIST = "/webhook/list";
const UNREADABLE = json("{]");

/** Methods that a path does not take, with a body and without. */
const wrongMethods = (path: string, methods: string[], takes: string) =>
  methods.flatMap((method): Row[] => {
    const says = `does not take ${method}; use ${takes}`;
    return [
      ["a wrong method", `${method} ${path}`, {}, says],
      ["a wrong method and a body", `${method} ${path}`, UNREADABLE, says],
    ];
  });

const unknown = (name: string, line: string): Row => [name, line, {}, "all paths: /openapi.json"];

/** Paths and methods. */
export const addressCorners: Corner[] = [
  ...corners(400, [
    ...wrongMethods(LIST, METHODS, "GET, HEAD"),
    ...wrongMethods(
      "/webhook",
      ["GET", ...METHODS.filter((method) => method !== "POST" && method !== "DELETE")],
      "POST, DELETE",
    ),
    ["a badly encoded path", "GET /%zz", {}, "percent-encoded"],
    ["a path that ends in half a character", "GET /webhook/%E0%A4", {}, "percent-encoded"],
    ["a badly encoded query", "DELETE /webhook?webhookId=%zz", {}, 'webhookId is "%zz", not a whole number'],
    ["half a character in the query", "DELETE /webhook?webhookId=%E0%A4", {}, "not a whole number"],
    ["a question mark for a query", "DELETE /webhook??", {}, "webhookId is required"],
    ["a name without a value", "DELETE /webhook?webhookId", {}, "webhookId is empty"],
    ["2,000 names", `DELETE /webhook?${"a=1&".repeat(2_000)}`, {}, "webhookId is required"],
    [
      "names of every object's properties",
      "DELETE /webhook?__proto__=1&constructor=2&toString=3",
      {},
      "webhookId is required",
    ],
    ["a slash at the end", "DELETE /webhook/?webhookId=4711", {}, "there is no webhook 4711"],
    ["HEAD where GET is wrong", "HEAD /webhook"],
    [
      "a body in chunks",
      "POST /webhook",
      {
        head: ["Content-Type: application/json", "Transfer-Encoding: chunked"],
        body: "2\r\n{}\r\n0\r\n\r\n",
      },
      "process is required",
    ],
  ]),
  ...corners(404, [
    ...METHODS.map((method) => unknown("no path", `${method} /webhooks`)),
    unknown("the prefix alone", "GET "),
    unknown("more after the path", `GET ${LIST}/1`),
    unknown("another case", "GET /Webhook/list"),
    unknown("two slashes", `GET /${LIST}`),
    unknown("two slashes at the end", `GET ${LIST}//`),
    unknown("an encoded slash", "GET /webhook%2Flist"),
    unknown("a path parameter", "GET /webhook;a=b/list"),
    unknown("5,000 characters", `GET /${"x".repeat(5_000)}`),
    ["no path", "HEAD /webhooks"],
  ]),
  ...corners(200, [
    ["a slash at the end", `GET ${LIST}/`],
    ["an encoded letter", "GET /webhook/%6cist"],
    ["an unknown query", `GET ${LIST}?page=2&page=3`],
    ["no body", `HEAD ${LIST}`],
    ["a body, which is not read", `GET ${LIST}`, UNREADABLE],
    ["another protocol", `GET ${LIST}`, { head: ["Upgrade: websocket"] }],
  ]),
];
