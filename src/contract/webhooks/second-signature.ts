/**
 * The forms of a signature beside that of Standard Webhooks, as stored, in the order of the enumeration `SignatureForm`:
 *
 * - `svix`: the standard one under Svix's names, `svix-id`, `svix-timestamp` and `svix-signature`
 * - `stripe`: `t=<seconds>,v1=<hex of HMAC-SHA256 of "<seconds>.<body>">`, with a `v1` per valid secret
 * - `hex`: the hex of HMAC-SHA256 of the body by the newest secret, after a prefix, as GitHub sends it
 */
export const SIGNATURE_FORMS = ["svix", "stripe", "hex"] as const;
export type SignatureForm = (typeof SIGNATURE_FORMS)[number];

/** The headers of the form `svix`. */
export const SVIX_HEADERS = ["svix-id", "svix-timestamp", "svix-signature"] as const;

/** The header of the other forms, if a webhook has none of its own. */
export const SIGNATURE_HEADER = { stripe: "Stripe-Signature", hex: "X-Hub-Signature-256" } as const;

/** The second signature of a webhook. */
export interface SecondSignature {
  /** Null for none. */
  signatureForm?: SignatureForm | null;
  signatureHeader?: string | null;
  /** Only in the form `hex`. */
  signaturePrefix?: string | null;
}

/** The names of the headers of a second signature; none without one. */
export function secondSignatureHeaders({
  signatureForm,
  signatureHeader,
}: SecondSignature): readonly string[] {
  if (!signatureForm) return [];
  if (signatureForm === "svix") return SVIX_HEADERS;
  return [signatureHeader ?? SIGNATURE_HEADER[signatureForm]];
}
