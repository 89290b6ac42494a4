import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectDescribed } from "../../support/described-answers.ts";
import { parseRaw, sendRaw } from "../../support/raw-request.ts";
import { type RestRequest, startTestApi, type TestApi } from "../../support/test-api.ts";
import { addressCorners } from "./corners/addresses.ts";
import type { Corner } from "./corners/corner.ts";
import { bodyCorners } from "./corners/create-body.ts";
import { processCorners } from "./corners/create-process.ts";
import { urlCorners } from "./corners/create-url.ts";
import { idCorners } from "./corners/delete.ts";
import { keyCorners } from "./corners/keys.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

let paths = 0;
const freshUrl = () => `https://receiver.example/corners/${++paths}`;

/** A webhook for this corner alone, beyond what a double can hold. */
async function freshId(): Promise<bigint> {
  const id = 9_007_199_254_740_993n + 2n * BigInt(++paths);
  await api.context.db.raw(`alter table webhooks alter column id restart with ${id}`);
  const { text } = await api.rest("POST", "/api/webhook", { json: { process: 1, url: freshUrl() } });
  expect(text).toContain(`"Id":${id},`);
  return id;
}

async function answer(corner: Corner, prefix: string): Promise<{ status: number; text: string }> {
  const { method, bytes } = corner;
  const address = prefix + corner.path;
  if (bytes) {
    const { head, body = "" } = bytes({ key: api.adminKey });
    const lines = [`${method} ${address} HTTP/1.1`, "Host: a", "Connection: close", ...head, "", body];
    const { status, head: answered, body: text } = parseRaw(await sendRaw(api.httpPort, lines.join("\r\n")));
    const header = (name: string) => new RegExp(`^${name}: (.+)$`, "im").exec(answered)?.[1];
    expectDescribed({ method, path: address, status, header, text });
    return { status, text };
  }
  const needsId = method === "DELETE" && corner.status === 200;
  const given = { url: freshUrl(), id: needsId ? await freshId() : 0n, key: api.adminKey };
  const request: RestRequest = corner.request?.(given) ?? {};
  const answered = await api.rest(method, address, request);
  if (needsId) expect(answered.text).toContain(`"Data":{"Id":${given.id},`);
  return answered;
}

const tables: [string, Corner[]][] = [
  ["§4.2: the parameter process of create", processCorners],
  ["§4.2: the parameter url of create", urlCorners],
  ["§4.2: the body of create", bodyCorners],
  ["§4.3: the parameter of delete", idCorners],
  ["§4: paths and methods", addressCorners],
  ["§5.1: the header of the key", keyCorners],
];

describe.each(["/api", "/api/v1", "/api/v2"])("§9.1: under %s", (prefix) => {
  describe.each(tables)("%s", (_title, corners) => {
    test.each(
      corners.map(
        (corner) => [`${corner.method} ${corner.path.slice(0, 40)} ${corner.name}`, corner] as const,
      ),
    )("%s", async (_name, corner) => {
      const { status, text } = await answer(corner, prefix);
      expect(status).toBe(corner.status);
      if (corner.method === "HEAD") {
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
    });
  });
});
