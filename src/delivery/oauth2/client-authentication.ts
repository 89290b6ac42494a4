import type { OAuth2Client } from "../../contract/target-rules.ts";

/**
 * A way to send a client's id and secret to a token endpoint: in the header Authorization, percent-encoded or as they are, or in the body.
 * RFC 6749, 2.3.1, demands the first way, but servers differ.
 */
export type ClientAuthentication = "encoded" | "literal" | "body";

/** Characters that change when an encoded text is decoded as a form (RFC 6749, appendix B). Most servers take all others as they are. */
const CHANGING = /[%+ ]|[^ -~]/gu;

/** @param changing the characters to encode */
const encoded = (text: string, changing: RegExp) =>
  text.replaceAll(changing, (character) => (character === " " ? "+" : percentEncoded(character)));

const percentEncoded = (character: string) =>
  [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");

/** The value of Authorization; null for the body. */
export function authorizationOf(
  { clientId, clientSecret }: OAuth2Client,
  way: ClientAuthentication,
): string | null {
  if (way === "body") return null;
  const isEncoded = way === "encoded";
  // A colon in the id would end it.
  const id = isEncoded ? encoded(clientId, /[%+ :]|[^ -~]/gu) : clientId;
  const secret = isEncoded ? encoded(clientSecret, CHANGING) : clientSecret;
  return `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
}

/** All ways for a client, in the order in which to try them: the way that has worked, the chosen way, then the others. */
export function waysFor(client: OAuth2Client, worked?: ClientAuthentication): ClientAuthentication[] {
  const isSame = authorizationOf(client, "encoded") === authorizationOf(client, "literal");
  const byHeader: ClientAuthentication[] = isSame ? ["encoded"] : ["encoded", "literal"];
  const ways: ClientAuthentication[] = client.secretInBody ? ["body", ...byHeader] : [...byHeader, "body"];
  return worked === undefined ? ways : [worked, ...ways.filter((way) => way !== worked)];
}
