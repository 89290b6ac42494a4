import type { Corner } from "./corner.ts";

const METHODS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "QUERY"];
const keyed = ({ key }: { key: string }) => ({ head: [`X-Service-Key: ${key}`] });

/** A method that a path does not take, with a body and without. */
function wrongMethods(path: string, methods: string[], takes: string): Corner[] {
  return methods.flatMap((method) => {
    const says = `does not take ${method}; use ${takes}`;
    return [
      { name: "which it does not take", method, path, bytes: keyed, status: 400, says },
      {
        name: "which it does not take, with a body",
        method,
        path,
        bytes: ({ key }: { key: string }) => ({
          head: [`X-Service-Key: ${key}`, "Content-Type: application/json", "Content-Length: 2"],
          body: "{]",
        }),
        status: 400,
        says,
      },
    ];
  });
}

const unknown = (path: string, name: string, method = "GET"): Corner => ({
  name,
  method,
  path,
  bytes: keyed,
  status: 404,
  says: "all paths: /openapi.json",
});

/** Paths and methods. */
export const addressCorners: Corner[] = [
  ...wrongMethods("/webhook/list", METHODS, "GET, HEAD"),
  ...wrongMethods(
    "/webhook",
    ["GET", ...METHODS.filter((method) => method !== "POST" && method !== "DELETE")],
    "POST, DELETE",
  ),
  ...METHODS.map((method) => unknown("/webhooks", "which is no path", method)),
  unknown("", "which is the prefix alone"),
  unknown("/webhook/list/1", "which goes on after the path"),
  unknown("/Webhook/list", "in another case"),
  unknown("//webhook/list", "with two slashes"),
  unknown("/webhook/list//", "with two slashes at its end"),
  unknown("/webhook%2Flist", "with an encoded slash"),
  unknown("/webhook;a=b/list", "with a path parameter"),
  unknown(`/${"x".repeat(5_000)}`, "of 5,000 characters"),
  {
    name: "that is badly encoded",
    method: "GET",
    path: "/%zz",
    bytes: keyed,
    status: 400,
    says: "percent-encoded",
  },
  {
    name: "that ends in half a character",
    method: "GET",
    path: "/webhook/%E0%A4",
    bytes: keyed,
    status: 400,
    says: "percent-encoded",
  },
  {
    name: "with a badly encoded query",
    method: "DELETE",
    path: "/webhook?webhookId=%zz",
    bytes: keyed,
    status: 400,
    says: 'webhookId is "%zz", not a whole number',
  },
  {
    name: "with half a character in the query",
    method: "DELETE",
    path: "/webhook?webhookId=%E0%A4",
    bytes: keyed,
    status: 400,
    says: "not a whole number",
  },
  {
    name: "with a query that is a question mark",
    method: "DELETE",
    path: "/webhook??",
    bytes: keyed,
    status: 400,
    says: "webhookId is required",
  },
  {
    name: "with a name without a value",
    method: "DELETE",
    path: "/webhook?webhookId",
    bytes: keyed,
    status: 400,
    says: "webhookId is empty",
  },
  {
    name: "with a query of 2,000 names",
    method: "DELETE",
    path: `/webhook?${"a=1&".repeat(2_000)}`,
    bytes: keyed,
    status: 400,
    says: "webhookId is required",
  },
  {
    name: "with names of every object's properties",
    method: "DELETE",
    path: "/webhook?__proto__=1&constructor=2&toString=3",
    bytes: keyed,
    status: 400,
    says: "webhookId is required",
  },
  { name: "with a slash at its end", method: "GET", path: "/webhook/list/", bytes: keyed, status: 200 },
  {
    name: "with a slash at its end",
    method: "DELETE",
    path: "/webhook/?webhookId=4711",
    bytes: keyed,
    status: 400,
    says: "there is no webhook 4711",
  },
  { name: "with an encoded letter", method: "GET", path: "/webhook/%6cist", bytes: keyed, status: 200 },
  {
    name: "with a query that it does not know",
    method: "GET",
    path: "/webhook/list?page=2&page=3",
    bytes: keyed,
    status: 200,
  },
  { name: "without a body", method: "HEAD", path: "/webhook/list", status: 200 },
  { name: "on a path that does not take GET either", method: "HEAD", path: "/webhook", status: 400 },
  { name: "on no path", method: "HEAD", path: "/webhooks", status: 404 },
  {
    name: "with a body, which it does not heed",
    method: "GET",
    path: "/webhook/list",
    bytes: ({ key }) => ({
      head: [`X-Service-Key: ${key}`, "Content-Type: application/json", "Content-Length: 2"],
      body: "{]",
    }),
    status: 200,
  },
  {
    name: "with a body in chunks",
    method: "POST",
    path: "/webhook",
    bytes: ({ key }) => ({
      head: [`X-Service-Key: ${key}`, "Content-Type: application/json", "Transfer-Encoding: chunked"],
      body: "2\r\n{}\r\n0\r\n\r\n",
    }),
    status: 400,
    says: "process is required",
  },
  {
    name: "that asks for another protocol",
    method: "GET",
    path: "/webhook/list",
    bytes: ({ key }) => ({ head: [`X-Service-Key: ${key}`, "Upgrade: websocket"] }),
    status: 200,
  },
];
