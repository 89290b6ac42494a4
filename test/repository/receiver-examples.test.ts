import { spawnSync } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseTarget } from "../../src/db/queue/webhooks.ts";
import { createSecretBox, webhookSecretContext } from "../../src/db/webhooks/secret-box.ts";
import { buildRequest } from "../../src/delivery/request/request.ts";
import { createSigner } from "../../src/delivery/request/signature.ts";
import { type Program, startProgram } from "../support/program.ts";
import { read, root } from "./project.ts";

const EXAMPLES = [
  { language: "TypeScript", file: "receiver.ts", command: process.execPath },
  { language: "Python", file: "receiver.py", command: "python3" },
];
const hasPython = spawnSync("python3", ["-c", "import standardwebhooks"]).status === 0;
const BODY = '{"OrderId":1001,"OrderNumber":"Größe ≤ 1","Lines":[]}';

test("docs/security.md links to every example for receivers", () => {
  const document = read("docs/security.md");
  for (const file of readdirSync(`${root}docs/examples`)) expect(document).toContain(`(examples/${file})`);
});

const box = createSecretBox(randomBytes(32));
const sign = createSigner(box);

/** A secret as the database has it, and as its receiver is given it. */
function secret(expires: Date | null = null) {
  const bytes = randomBytes(32);
  return {
    stored: { webhookId: 1n, sealed: box.seal(bytes, webhookSecretContext(1n)), expires },
    given: `whsec_${bytes.toString("base64")}`,
  };
}

describe.each(EXAMPLES)("the receiver in $language", ({ language, file, command }) => {
  const skipped = language === "Python" && !hasPython;
  const title = (text: string) =>
    skipped ? `${text} (skipped: this python3 has no package standardwebhooks)` : text;
  const current = secret();
  let receiver: Program;
  let port: string;

  beforeAll(async () => {
    if (skipped) return;
    const environment = { PORT: "0", WEBHOOK_SECRET: current.given, PYTHONUTF8: "1" };
    receiver = startProgram([command, `docs/examples/${file}`], { environment });
    [, port = ""] = await receiver.until(/^listening on (\d+)$/m);
  });
  afterAll(async () => {
    if (!skipped) await receiver?.end("SIGTERM");
  });

  /** Sends what the service would send; answers the status. */
  async function deliver(
    secrets = [current.stored],
    more: { id?: string; payload?: string; body?: string; signature?: string; at?: Date } = {},
  ): Promise<number> {
    const webhook = {
      id: 1n,
      revision: 1n,
      process: 1,
      target: parseTarget("https://x/"),
      installedAppId: null,
      secrets,
    };
    const signAt: typeof sign = (all, id, now, body) => sign(all, id, more.at ?? now, body);
    const id = more.id ?? randomUUID();
    const event = { payload: more.payload ?? BODY, userId: "u" };
    const built = buildRequest({ id, webhook }, event, signAt, { headers: [] });
    const headers = new Headers();
    for (let i = 0; i < built.headers.length; i += 2) {
      headers.set(built.headers[i] as string, built.headers[i + 1] as string);
    }
    if (more.signature !== undefined) headers.set("webhook-signature", more.signature);
    const response = await fetch(`http://127.0.0.1:${port}/hooks`, {
      method: "POST",
      headers,
      body: more.body ?? built.body,
    });
    return response.status;
  }

  test.skipIf(skipped)(title("takes a delivery of the service, once however often it comes"), async () => {
    const id = randomUUID();
    expect([await deliver(undefined, { id }), await deliver(undefined, { id })]).toEqual([204, 204]);
    await deliver(undefined, { body: "{}" });
    await deliver();
    await expect.poll(() => receiver.printed().match(/^OrderDispatched/gm)?.length).toBe(2);
  });

  test.skipIf(skipped)(
    title("refuses what was changed, made up, signed by others, or too long ago"),
    async () => {
      expect(await deliver(undefined, { body: `${BODY} ` })).toBe(400);
      expect(await deliver([secret().stored])).toBe(400);
      for (const signature of ["v1,AAAA", "v1,%", "nonsense", "v2,AAAA"]) {
        expect(await deliver(undefined, { signature })).toBe(400);
      }
      const tooLongAgo = { at: new Date(Date.now() - 6 * 60_000) };
      expect(await deliver(undefined, tooLongAgo)).toBe(400);
      expect(await deliver()).toBe(204);
    },
  );

  test.skipIf(skipped)(title("goes on after a sender that disconnects within a body"), async () => {
    const sender = connect(Number(port), "127.0.0.1");
    sender.end("POST /hooks HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
    await once(sender.resume(), "close");
    expect(await deliver()).toBe(204);
  });

  test.skipIf(skipped)(title("refuses a body of more than 1 MiB, and takes the next"), async () => {
    // Some senders only notice that the connection is closed.
    const refused = deliver(undefined, { payload: JSON.stringify("x".repeat(1_048_576)) });
    expect(await refused.catch(() => 400)).toBe(400);
    expect(await deliver()).toBe(204);
  });

  test.skipIf(skipped)(
    title("takes deliveries while its secret is the old one, and while it is the new one"),
    async () => {
      const tomorrow = new Date(Date.now() + 24 * 3_600_000);
      const asOld = { ...current.stored, expires: tomorrow };
      expect(await deliver([secret().stored, asOld])).toBe(204);
      expect(await deliver([current.stored, secret(tomorrow).stored])).toBe(204);
      const expired = { ...asOld, expires: new Date() };
      expect(await deliver([secret().stored, expired])).toBe(400);
    },
  );
});
