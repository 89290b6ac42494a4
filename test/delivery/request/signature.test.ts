import { createPublicKey, generateKeyPairSync, randomBytes, randomUUID, verify } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { createSigner } from "../../../src/delivery/request/signature.ts";
import { createSecretBox, keyPairContext, webhookSecretContext } from "../../../src/webhooks/secret-box.ts";

const box = createSecretBox(randomBytes(32));
const sign = createSigner(box);
const BODY = '{"OrderId":9007199254740993,"Note":"Größe ≤ 1"}';

/** A secret as the claim gives it, and as its receiver has it. */
function secret(expires: Date | null = null) {
  const bytes = randomBytes(32);
  return {
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
