import { once } from "node:events";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isRoot } from "../../src/lib/dev-servers/process/owner.ts";
import { node, type Program, startProgram } from "../support/program.ts";

// test/app/first-start.test.ts has a service deliver to it.
const [SECRET, OTHER] = [7, 8].map((byte) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`) as [
  string,
  string,
];

let folder: string;
let dataDir: string;
let receiver: Program;
let port: string;
let ca: Buffer;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "webhook-test-receiver-"));
  dataDir = path.join(folder, "data");
  receiver = startProgram(node("demo/listen.ts", "--port", "0", "--secret", SECRET), {
    environment: { DATA_DIR: dataDir, npm_lifecycle_event: "receiver" },
  });
  [, port = ""] = await receiver.until(/listens on \S+:(\d+)\.[\s\S]*Then register/);
  ca = await readFile(path.join(dataDir, "receiver/ca.pem"));
});
afterAll(async () => {
  receiver.process.kill("SIGKILL");
  await rm(folder, { recursive: true });
});

/** Sends a delivery, whose headers have gone. */
function send(target: string, id: string, secret: string, more: Record<string, string> = {}) {
  const at = new Date();
  const headers = {
    ...more,
    "x-service-webhook-id": id,
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(at.getTime() / 1_000)),
    "webhook-signature": new Webhook(secret).sign(id, at, "{}"),
  };
  const sent = request({ host: "127.0.0.1", port, method: "POST", path: target, headers, ca });
  sent.flushHeaders();
  return sent;
}

async function deliver(target: string, id: string, secret = SECRET): Promise<number | undefined> {
  const [response] = (await once(send(target, id, secret).end("{}"), "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode;
}

test.runIf(isRoot())(
  "the receiver creates a DATA_DIR that the user of the database may traverse",
  async () => {
    expect((await stat(dataDir)).mode & 0o777).toBe(0o711);
    expect((await stat(path.join(dataDir, "receiver"))).mode & 0o777).toBe(0o700);
  },
);

test("the receiver prints whether a signature is valid", async () => {
  expect(await deliver("/hooks", "valid")).toBe(200);
  await receiver.until(/POST \/hooks[\s\S]*…valid signature valid/);
  expect(await deliver("/hooks", "forged", OTHER)).toBe(200);
  await receiver.until(/…forged SIGNATURE INVALID/);
});

test("a path makes the receiver fail as often as it says", async () => {
  const statuses: (number | undefined)[] = [];
  for (let n = 0; n < 3; n += 1) statuses.push(await deliver("/fail-first/2", "recovers"));
  for (let n = 0; n < 2; n += 1) statuses.push(await deliver("/status/410", "fails"));
  expect(statuses).toEqual([503, 503, 200, 410, 410]);
});

test("a receiver that npm runs ends at SIGTERM, also while a delayed response is pending", async () => {
  const delayed = send("/delay/600000", "delayed", SECRET, { expect: "100-continue" });
  delayed.on("error", () => {});
  // Sent when the receiver has the request.
  await once(delayed, "continue");
  delayed.end("{}");
  expect(await receiver.end("SIGTERM")).toBe(0);
});
