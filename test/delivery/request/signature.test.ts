import {
  createHmac,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  randomUUID,
  verify,
} from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import type { SignatureForm } from "../../../gen/webhook/v1/webhook_pb.ts";
import { type SecondSignature, SIGNATURE_FORMS } from "../../../src/contract/webhooks/second-signature.ts";
import { createSigner } from "../../../src/delivery/request/signature.ts";
import { createSecretBox, keyPairContext, webhookSecretContext } from "../../../src/webhooks/secret-box.ts";
import { secondSignatureCode } from "../../../web/src/pages/webhooks/second-signature-code.ts";

const box = createSecretBox(randomBytes(32));
const sign = createSigner(box);
const BODY = '{"OrderId":9007199254740993,"Note":"Größe ≤ 1"}';

/** A secret as the claim gives it, and as its receiver has it. */
function secret(expires: Date | null = null, bytes = randomBytes(32)) {
  return {
    bytes,
    webhookId: 1n,
    sealed: box.seal(bytes, webhookSecretContext(1n)),
    expires,
    receiver: new Webhook(bytes.toString("base64")),
  };
}

/** A key pair as the claim gives it, and what its receiver verifies with. */
function keyPair(expires: Date | null = null) {
  const { privateKey } = generateKeyPairSync("ed25519");
  const publicKey = createPublicKey(privateKey);
  return {
    webhookId: 1n,
    sealed: box.seal(privateKey.export({ format: "der", type: "pkcs8" }), keyPairContext(1n)),
    expires,
    keyPair: true as const,
    accepts(headers: ReturnType<typeof sign>, body: string) {
      const signed = Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
      const all = signaturesOf(headers).filter((each) => each.startsWith("v1a,"));
      return all.some((each) => verify(null, signed, publicKey, Buffer.from(each.slice(4), "base64")));
    },
  };
}

const signaturesOf = (headers: { "webhook-signature": string }) => headers["webhook-signature"].split(" ");

const soon = () => new Date(Date.now() + 60_000);
function isVerified({ receiver }: ReturnType<typeof secret>, headers: ReturnType<typeof sign>): boolean {
  try {
    return receiver.verify(BODY, headers) !== undefined;
  } catch {
    return false;
  }
}

test("a signature is made with every secret that is valid at the moment of the attempt, the newest first", () => {
  const end = new Date();
  const [newest, old, ended] = [secret(), secret(soon()), secret(end)];
  const id = randomUUID();
  const before = sign([newest, old, ended], id, new Date(end.getTime() - 1), BODY);
  expect([newest, old, ended].map((each) => isVerified(each, before))).toEqual([true, true, true]);
  const [first = ""] = signaturesOf(before);
  expect(isVerified(newest, { ...before, "webhook-signature": first })).toBe(true);
  const after = sign([newest, old, ended], id, end, BODY);
  expect([newest, old, ended].map((each) => isVerified(each, after))).toEqual([true, true, false]);
  expect(signaturesOf(after)).toHaveLength(2);
});

test("a signature is also made with every valid key pair, after those of the secrets, which receivers still find", () => {
  const [one, newest, old, ended] = [secret(), keyPair(), keyPair(soon()), keyPair(new Date())];
  const headers = sign([one, newest, old, ended], randomUUID(), new Date(), BODY);
  expect(signaturesOf(headers).map((each) => each.split(",")[0])).toEqual(["v1", "v1a", "v1a"]);
  expect(isVerified(one, headers)).toBe(true);
  for (const { accepts } of [newest, old]) {
    expect(accepts(headers, BODY)).toBe(true);
    expect(accepts(headers, `${BODY} `)).toBe(false);
    expect(accepts({ ...headers, "webhook-id": randomUUID() }, BODY)).toBe(false);
  }
  expect(ended.accepts(headers, BODY)).toBe(false);
});

/** Signs a body for a webhook with a second signature; answers all headers by name. */
function headersOf(
  second: SecondSignature,
  secrets: Parameters<typeof sign>[0],
  body: string,
  at = new Date(),
) {
  const { second: more = [], ...first } = sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, second);
  const names = more.filter((_, n) => n % 2 === 0);
  return { ...first, ...Object.fromEntries(names.map((name, n) => [name, more[2 * n + 1]])) };
}

test.each([
  {
    of: "Standard Webhooks and Svix",
    key: Buffer.from("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "base64"),
    at: 1_614_265_330,
    body: '{"test": 2432232314}',
    second: { signatureForm: "svix" },
    expected: {
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
      "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "svix-timestamp": "1614265330",
      "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
  },
  {
    of: "GitHub",
    key: Buffer.from("It's a Secret to Everybody"),
    at: 1,
    body: "Hello, World!",
    second: { signatureForm: "hex", signaturePrefix: "sha256=" },
    expected: {
      "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    },
  },
] as const)(
  "the published example of $of has its published signature",
  ({ key, at, body, second, expected }) => {
    expect(headersOf(second, [secret(null, key)], body, new Date(1_000 * at))).toMatchObject(expected);
  },
);

test("in Stripe's form, each valid secret signs the time and the body, and in the form of the body alone, the newest", () => {
  const at = new Date(1_700_000_000_999);
  const [newest, old, ended] = [secret(), secret(new Date(at.getTime() + 1)), secret(at)];
  const all = [newest, old, ended, keyPair()];
  const hex = ({ bytes }: { bytes: Buffer }, content: string) =>
    createHmac("sha256", bytes).update(content).digest("hex");
  const signed = [newest, old].map((each) => `v1=${hex(each, `1700000000.${BODY}`)}`);
  const header = { signatureHeader: "X-Signature" };
  expect(headersOf({ signatureForm: "stripe", ...header }, all, BODY, at)).toMatchObject({
    "X-Signature": `t=1700000000,${signed.join()}`,
  });
  expect(headersOf({ signatureForm: "hex", ...header }, all, BODY, at)).toMatchObject({
    "X-Signature": hex(newest, BODY),
  });
  expect(sign(all, "id", at, BODY, { signatureForm: null, ...header })).not.toHaveProperty("second");
});

test.each(["stripe", "hex"] as const)(
  "the code that the page shows verifies the form %s, and nothing else",
  async (form) => {
    const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-verify-"));
    try {
      const [one, other] = [secret(), secret()];
      const second = { signatureForm: form, signatureHeader: "X-Signature", signaturePrefix: 'a"b=' };
      const number = (SIGNATURE_FORMS.indexOf(form) + 1) as SignatureForm;
      const code = secondSignatureCode({ ...second, signatureForm: number }, "X-Signature") as string;
      const file = path.join(folder, `${form}.ts`);
      const given = `whsec_${one.bytes.toString("base64")}`;
      await writeFile(file, code.replace('process.env.WEBHOOK_SECRET ?? ""', JSON.stringify(given)));
      const { isVerified: verified } = await import(file);
      const headerOf = (by: typeof one, at = new Date()) =>
        (headersOf(second, [by], BODY, at) as Record<string, unknown>)["X-Signature"];
      expect(verified(BODY, headerOf(one))).toBe(true);
      expect([verified(`${BODY} `, headerOf(one)), verified(BODY, headerOf(other))]).toEqual([false, false]);
      for (const odd of ["", "t=,v1=", "v1=00", "nonsense"]) expect(verified(BODY, odd)).toBe(false);
      const old = headerOf(one, new Date(Date.now() - 360_000));
      if (form === "stripe") expect(verified(BODY, old)).toBe(false);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);
