import { randomBytes, randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { createSecretBox, webhookSecretContext } from "../../../src/db/webhooks/secret-box.ts";
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
});
