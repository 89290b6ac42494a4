import { SignatureForm, type Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";

const KEY = `const secret = (process.env.WEBHOOK_SECRET ?? "").replace("whsec_", "");
const key = Buffer.from(secret, "base64");`;

const CODES: Partial<Record<SignatureForm, (header: string, prefix: string) => string>> = {
  [SignatureForm.SVIX]: () => `import { Webhook } from "svix";

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");

// Pass the raw body, not parsed JSON. Throws if the signature is invalid
// or older than five minutes; answer 400 then.
export function verified(body: string, headers: Record<string, string>): unknown {
  return webhook.verify(body, headers);
}`,
  [SignatureForm.STRIPE]: (header) => `import { createHmac, timingSafeEqual } from "node:crypto";

${KEY}

// Pass the raw body, and the value of ${header}. Answer 400 if it returns false:
// the signature is invalid or older than five minutes.
export function isVerified(body: string, header: string): boolean {
  const [time, ...signatures] = header.split(",").map((part) => part.slice(part.indexOf("=") + 1));
  if (!(Math.abs(Date.now() / 1000 - Number(time)) < 300)) return false;
  const expected = createHmac("sha256", key).update(\`\${time}.\${body}\`).digest();
  return signatures.some((signature) => {
    const given = Buffer.from(signature, "hex");
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}`,
  [SignatureForm.HEX]: (header, prefix) => `import { createHmac, timingSafeEqual } from "node:crypto";

${KEY}

// Pass the raw body, and the value of ${header}. Answer 400 if it returns false.
// The signature has no time: skip repeats of an X-Service-Webhook-Id.
export function isVerified(body: string, header: string): boolean {
  const hex = createHmac("sha256", key).update(body).digest("hex");
  const [given, expected] = [Buffer.from(header), Buffer.from(${JSON.stringify(prefix)} + hex)];
  return given.length === expected.length && timingSafeEqual(given, expected);
}`,
};

/** Code in TypeScript that verifies a webhook's second signature; undefined without one. */
export function secondSignatureCode(
  {
    signatureForm = SignatureForm.UNSPECIFIED,
    signaturePrefix = "",
  }: Pick<Webhook, "signatureForm" | "signaturePrefix">,
  header = "",
): string | undefined {
  return CODES[signatureForm]?.(header, signaturePrefix);
}
