import { describe, expect, test } from "vitest";
import { aWebhook } from "../../support/builders.ts";
import { expectDescribed } from "../../support/described-answers.ts";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { useApi } from "../../support/test-api.ts";
import { addressCorners } from "./corners/addresses.ts";
import { type Corner, URL_LENGTH } from "./corners/corner.ts";
import { bodyCorners, createWays, processCorners, urlCorners } from "./corners/create.ts";
import { deleteWays, idCorners } from "./corners/delete.ts";
import { keyCorners } from "./corners/keys.ts";

const api = await useApi();

let urls = 0;
const freshUrl = () => "https://receiver.example/".padEnd(URL_LENGTH, String(++urls).padStart(5, "0"));

/** Sends a corner's bytes, since proper HTTP clients refuse to send some. */
async function answer(corner: Corner, prefix: string): Promise<{ status: number; text: string }> {
  const { line, head = [], keys = ["X-Service-Key: {key}"], body = "" } = corner;
  const isDelete = corner.status === 200 && line.startsWith("DELETE");
  const given: Record<string, string> = {
    "{key}": api.adminKey,
    "{KEY}": api.adminKey.toUpperCase(),
    "{url}": freshUrl(),
    // Beyond what a double can hold.
    "{id}": isDelete
      ? String(
          await aWebhook()
            .with({ id: String(2n ** 53n + 2n * BigInt(++urls) + 1n) })
            .in(api.context.db),
        )
      : "",
  };
  const filled = (text: string) =>
    text.replaceAll(/\{(?:key|KEY|url|id)\}/g, (name) => given[name] as string);
  const bytes = typeof body === "string" ? Buffer.from(filled(body)) : body;
  const [method = "", path = ""] = filled(line).split(" ");
  const framing = head.includes("Transfer-Encoding: chunked") || corner.body === undefined;
  const lines = [
    `${method} ${prefix}${path} HTTP/1.1`,
    "Host: a",
    "Connection: close",
    ...[...keys, ...head].map(filled),
    ...(framing ? [] : [`Content-Length: ${bytes.length}`]),
  ];
  const sent = Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), bytes]);
  const { status, head: answered, body: text } = parseRaw(await sendRaw(api.httpPort, sent));
  const header = (name: string) => new RegExp(`^${name}: (.+)$`, "im").exec(answered)?.[1];
  expectDescribed({ method, path: prefix + path, status, header, text });
  if (isDelete) expect(text).toContain(`"Data":{"Id":${given["{id}"]},`);
  else if (method === "POST" && status === 200)
    expect(text).toContain(`"WebhookProcess":"OrderDispatched","Url":"${given["{url}"]}"`);
  return { status, text };
}

const PREFIXES = ["/api", "/api/v1", "/api/v2"];
const tables: [string, Corner[]][] = [
  ["§4.2: the parameter process of create", processCorners],
  ["§4.2: the parameter url of create", urlCorners],
  ["§4.2: the body of create", bodyCorners],
  ["§4.2.3: parameters of create are taken", createWays],
  ["§4.3: the parameter of delete", idCorners],
  ["§4.3.3: the parameter of delete is taken, and Data is the deleted webhook,", deleteWays],
  ["§4: paths and methods", addressCorners],
  ["§5.1: the header of the key", keyCorners],
];

// Each corner under one of the prefixes, which lead to the same code.
describe.each(PREFIXES)("§9.1: under %s", (prefix) => {
  describe.each(tables)("%s", (_title, corners) => {
    const some = corners.filter((_corner, n) => PREFIXES[(n + Math.floor(n / 3)) % 3] === prefix);
    test.each(some.map((corner) => [`${corner.line.slice(0, 40)}, ${corner.name}`, corner] as const))(
      "%s",
      async (_name, corner) => {
        const { status, text } = await answer(corner, prefix);
        expect(status).toBe(corner.status);
        if (corner.line.startsWith("HEAD")) {
          expect(text).toBe("");
          return;
        }
        const envelope = JSON.parse(text);
        expect(Object.keys(envelope)).toEqual(["Success", "Data", "Warnings"]);
        if (corner.says === undefined) expect(envelope).toMatchObject({ Success: true, Warnings: [] });
        else
          expect(envelope).toEqual({
            Success: false,
            Data: null,
            Warnings: [expect.stringContaining(corner.says)],
          });
      },
    );
  });
});
