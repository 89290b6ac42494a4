import { spawnSync } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { request as httpsRequest } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { buildRequest } from "../../src/delivery/request/request.ts";
import { createSigner } from "../../src/delivery/request/signature.ts";
import { parseTarget } from "../../src/webhooks/claimed-webhooks.ts";
import { createSecretBox, webhookSecretContext } from "../../src/webhooks/secret-box.ts";
import { type Program, startProgram } from "../support/program.ts";
import { read, root } from "./project.ts";

const HOUR_MS = 3_600_000;
const BODY = '{"OrderId":1001,"OrderNumber":"Größe ≤ 1","Lines":[]}';
const hasPython = spawnSync("python3", ["-c", "import standardwebhooks"]).status === 0;
const box = createSecretBox(randomBytes(32));
const sign = createSigner(box);

test("docs/security.md links to every example for receivers", () => {
  const document = read("docs/security.md");
  for (const file of readdirSync(`${root}docs/examples`)) expect(document).toContain(`(examples/${file})`);
});

/** A secret as the database has it, and as its receiver is given it. */
function secret(expires: Date | null = null) {
  const bytes = randomBytes(32);
  return {
    stored: { webhookId: 1n, sealed: box.seal(bytes, webhookSecretContext(1n)), expires },
    given: `whsec_${bytes.toString("base64")}`,
  };
}

describe.each([
  { language: "TypeScript", command: [process.execPath, "docs/examples/receiver.ts"], isMissing: false },
  {
    language: hasPython ? "Python" : "Python (skipped: this python3 has no package standardwebhooks)",
    command: ["python3", "docs/examples/receiver.py"],
    isMissing: !hasPython,
  },
])("the receiver in $language", ({ command, isMissing }) => {
  const current = secret();
  let receiver: Program;
  let port: string;
  beforeAll(async () => {
    if (isMissing) return;
    const environment = { PORT: "0", WEBHOOK_SECRET: current.given, PYTHONUTF8: "1" };
    receiver = startProgram(command, { environment });
    [, port = ""] = await receiver.until(/^listening on (\d+)$/m);
  });
  afterAll(async () => void (await receiver?.end("SIGTERM")));

  /** Sends what the service would send; answers the status. */
  async function deliver(
    more: {
      id?: string;
      secrets?: (typeof current.stored)[];
      payload?: string;
      body?: string;
      signature?: string;
      at?: Date;
    } = {},
  ): Promise<number> {
    const { id = randomUUID(), secrets = [current.stored], payload = BODY } = more;
    const target = parseTarget("https://x/");
    const webhook = { id: 1n, revision: 1n, process: 1, target, installedAppId: null, secrets };
    const signAt: typeof sign = (all, of, now, body) => sign(all, of, more.at ?? now, body);
    const built = buildRequest({ id, webhook }, { payload, userId: "u" }, signAt, { headers: [] });
    const headers = new Headers();
    for (let i = 0; i < built.headers.length; i += 2)
      headers.set(built.headers[i] as string, built.headers[i + 1] as string);
    if (more.signature !== undefined) headers.set("webhook-signature", more.signature);
    const init = { method: "POST", headers, body: more.body ?? built.body };
    return (await fetch(`http://127.0.0.1:${port}/hooks`, init)).status;
  }

  test.skipIf(isMissing)("takes a delivery of the service, once however often it comes", async () => {
    const id = randomUUID();
    expect([await deliver({ id }), await deliver({ id })]).toEqual([204, 204]);
    await deliver({ body: "{}" });
    await deliver();
    await expect.poll(() => receiver.printed().match(/^OrderDispatched/gm)?.length).toBe(2);
  });

  test.skipIf(isMissing).for([
    { what: "that was changed", body: `${BODY} ` },
    { what: "that others signed", secrets: [secret().stored] },
    ...["v1,AAAA", "v1,%", "nonsense", "v2,AAAA"].map((signature) => ({
      what: `signed ${signature}`,
      signature,
    })),
    { what: "of 6 minutes ago", at: new Date(Date.now() - HOUR_MS / 10) },
    {
      what: "whose secret has expired",
      secrets: [secret().stored, { ...current.stored, expires: new Date() }],
    },
    { what: "of more than 1 MiB", payload: JSON.stringify("x".repeat(1_048_576)) },
  ])("refuses a delivery $what, and takes the next", async (delivery) => {
    // Some senders only notice that the connection is closed.
    expect(await deliver(delivery).catch(() => 400)).toBe(400);
    expect(await deliver()).toBe(204);
  });

  test.skipIf(isMissing)("serves HTTPS with the certificate that it is given", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "webhook-receiver-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const made = spawnSync(process.execPath, ["demo/listen.ts", "--certificate"], {
      env: { ...process.env, DATA_DIR: folder },
      encoding: "utf8",
    });
    const [, TLS_CERT = "", TLS_KEY = ""] = /^TLS_CERT=(\S+) TLS_KEY=(\S+)$/m.exec(made.stdout) ?? [];
    const environment = { PORT: "0", WEBHOOK_SECRET: current.given, TLS_CERT, TLS_KEY };
    const secure = startProgram(command, { environment });
    onTestFinished(async () => void (await secure.end("SIGTERM")));
    const [, at = ""] = await secure.until(/^listening on (\d+)$/m);
    const ca = await readFile(path.join(folder, "receiver", "ca.pem"));
    const status = await new Promise((resolve, reject) => {
      const request = httpsRequest({
        port: at,
        host: "localhost",
        ca,
        method: "POST",
        headers: { "Content-Length": 2 },
      });
      request.once("response", (response) => resolve(response.statusCode)).once("error", reject);
      request.end("{}");
    });
    expect(status).toBe(400);
  });

  test.skipIf(isMissing)("keeps serving after a sender disconnects within a body", async () => {
    const sender = connect(Number(port), "127.0.0.1");
    sender.end("POST /hooks HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
    await once(sender.resume(), "close");
    expect(await deliver()).toBe(204);
  });

  test.skipIf(isMissing)(
    "takes deliveries while its secret is the old one, and while it is the new one",
    async () => {
      const tomorrow = new Date(Date.now() + 24 * HOUR_MS);
      const asOld = { ...current.stored, expires: tomorrow };
      expect(await deliver({ secrets: [secret().stored, asOld] })).toBe(204);
      expect(await deliver({ secrets: [current.stored, secret(tomorrow).stored] })).toBe(204);
    },
  );
});
