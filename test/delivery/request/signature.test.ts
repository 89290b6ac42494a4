import { createPublicKey, generateKeyPairSync, randomBytes, randomUUID, verify } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import {
  createSecretBox,
  keyPairContext,
  webhookSecretContext,
} from "../../../src/db/webhooks/secret-box.ts";
import { createSigner } from "../../../src/delivery/request/signature.ts";

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
    accepts: (headers: ReturnType<typeof sign>, body: string) =>
      signaturesOf(headers)
        .filter((each) => each.startsWith("v1a,"))
        .some((each) => {
          const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
          return verify(null, Buffer.from(signed), publicKey, Buffer.from(each.slice(4), "base64"));
        }),
  };
}

const signaturesOf = (headers: { "webhook-signature": string }) => headers["webhook-signature"].split(" ");

describe("a signature", () => {
  test("is one of Standard Webhooks, over this id and this body", () => {
    const one = secret();
    const headers = sign([one], randomUUID(), new Date(), BODY);
    expect(() => one.receiver.verify(BODY, headers)).not.toThrow();
    expect(() => one.receiver.verify(`${BODY} `, headers)).toThrow();
    expect(() => one.receiver.verify(BODY, { ...headers, "webhook-id": randomUUID() })).toThrow();
    expect(() => secret().receiver.verify(BODY, headers)).toThrow();
  });

  test("is made with every secret that is valid, the newest first", () => {
    const [newest, old, older] = [
      secret(),
      secret(new Date(Date.now() + 60_000)),
      secret(new Date(Date.now() + 30_000)),
    ];
    const headers = sign([newest, old, older], randomUUID(), new Date(), BODY);
    expect(signaturesOf(headers)).toHaveLength(3);
    for (const { receiver } of [newest, old, older]) {
      expect(() => receiver.verify(BODY, headers)).not.toThrow();
    }
    const [first] = signaturesOf(headers);
    expect(() =>
      newest.receiver.verify(BODY, { ...headers, "webhook-signature": first as string }),
    ).not.toThrow();
  });

  test("is made with what is valid at the moment of the attempt, whenever the delivery was claimed", () => {
    const end = new Date();
    const [newest, old] = [secret(), secret(end)];
    const id = randomUUID();
    const before = sign([newest, old], id, new Date(end.getTime() - 1), BODY);
    expect(() => old.receiver.verify(BODY, before)).not.toThrow();
    const after = sign([newest, old], id, end, BODY);
    expect(signaturesOf(after)).toHaveLength(1);
    expect(() => old.receiver.verify(BODY, after)).toThrow();
    expect(() => newest.receiver.verify(BODY, after)).not.toThrow();
  });

  test("is also made with every valid key pair, after those of the secrets, which receivers still find", () => {
    const [one, newest, old, expired] = [
      secret(),
      keyPair(),
      keyPair(new Date(Date.now() + 60_000)),
      keyPair(new Date()),
    ];
    const headers = sign([one, newest, old, expired], randomUUID(), new Date(), BODY);
    expect(signaturesOf(headers).map((each) => each.split(",")[0])).toEqual(["v1", "v1a", "v1a"]);
    expect(() => one.receiver.verify(BODY, headers)).not.toThrow();
    for (const { accepts } of [newest, old]) {
      expect(accepts(headers, BODY)).toBe(true);
      expect(accepts(headers, `${BODY} `)).toBe(false);
      expect(accepts({ ...headers, "webhook-id": randomUUID() }, BODY)).toBe(false);
    }
    expect(expired.accepts(headers, BODY)).toBe(false);
  });
});
