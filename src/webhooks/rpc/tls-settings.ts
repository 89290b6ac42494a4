import { createPrivateKey, hash, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type {
  CertificateFactsSchema,
  MaskedRequestSettingsSchema,
  TlsSettings as TlsMessage,
} from "../../../gen/webhook/v1/request_settings_pb.ts";
import type { Facts } from "../../audit/index.ts";
import type { ClientCertificate, TlsSettings } from "../../contract/target-rules.ts";
import { readPrivateKey } from "./private-keys.ts";

/** The maximum size of a key, in characters of PEM. */
const MAX_KEY_PEM = 16_384;
/**
 * The maximum size of the certificates in one field, in characters of PEM, and their maximum number. The bundle of all public authorities,
 * as Debian has it, reaches half of both. A process reads 300 certificates in 9 ms when it connects with them for the first time.
 */
const MAX_PEM = 524_288;
const MAX_CERTIFICATES = 300;
/** The number of authorities in an entry of the audit log, and of expired certificates in a warning. */
const MAX_NAMED = 10;
/** The maximum length of a subject or issuer as it is shown and kept in the audit log, in characters. */
const MAX_SHOWN_NAME = 300;
/** `X509 CERTIFICATE` is an old label (RFC 7468, 5.1). */
const CERTIFICATE = /-----BEGIN (?:X509 )?CERTIFICATE-----[\s\S]+?-----END (?:X509 )?CERTIFICATE-----/g;

/** Collects what is wrong with a field. */
export type Check = (field: string, description: string | undefined) => void;

/** Collects what is wrong with fields, and notes about those that are not. */
export interface Findings {
  check: Check;
  /** @param note to read after the field's name */
  warn: (field: string, note: string) => void;
}

/**
 * The TLS settings of a request, with stored values where it leaves them out. Calls `check` for each field that is
 * wrong, without its value.
 *
 * @returns null for settings that change nothing
 */
export function checkedTls(
  asked: TlsMessage | undefined,
  stored: TlsSettings | null,
  findings: Findings,
): TlsSettings | null {
  if (!asked?.clientCertificate && !asked?.authorities) return null;
  return {
    client: asked.clientCertificate
      ? clientCertificate(asked.clientCertificate, stored?.client ?? null, findings)
      : null,
    authorities: asked.authorities
      ? authorities(asked.authorities.certificates, stored?.authorities ?? null, findings)
      : null,
  };
}

function clientCertificate(
  { certificate: pem, key: keyPem }: NonNullable<TlsMessage["clientCertificate"]>,
  stored: ClientCertificate | null,
  findings: Findings,
): ClientCertificate | null {
  const { check } = findings;
  const certificate =
    pem === undefined ? stored?.certificate : checkedCertificates(pem, "certificate", findings);
  if (certificate === undefined) {
    if (pem === undefined) check("tls.client_certificate.certificate", "is required: none is stored");
    return null;
  }
  const leaf = new X509Certificate(certificate);
  const key = keyPem === undefined ? stored && createPrivateKey(stored.key) : checkedKey(keyPem, check);
  if (!key) {
    if (keyPem === undefined) check("tls.client_certificate.key", "is required: none is stored");
    return null;
  }
  if (!leaf.checkPrivateKey(key)) {
    const which = keyPem === undefined ? "is required: the stored key" : "is a key that";
    check("tls.client_certificate.key", `${which} does not belong to the certificate`);
    return null;
  }
  const made = { certificate, key: key.export({ type: "pkcs8", format: "pem" }).toString() };
  try {
    createSecureContext({ cert: made.certificate, key: made.key });
  } catch (error) {
    // OpenSSL's words, such as `ee key too small`.
    const { reason = "cannot be used" } = error as { reason?: string };
    check("tls.client_certificate.certificate", `cannot be used for TLS: ${reason}`);
  }
  return made;
}

/** Undefined if the field is wrong. */
function checkedKey(pem: string, check: Check): KeyObject | undefined {
  const field = "tls.client_certificate.key";
  if (pem.length > MAX_KEY_PEM) {
    check(field, `has ${pem.length} characters; at most ${MAX_KEY_PEM} are allowed`);
    return undefined;
  }
  const key = readPrivateKey(pem);
  if (typeof key !== "string") return key;
  check(field, key);
  return undefined;
}

function authorities(pem: string | undefined, stored: string | null, findings: Findings): string | null {
  if (pem !== undefined) return checkedCertificates(pem, "authorities", findings) ?? null;
  if (stored === null) findings.check("tls.authorities.certificates", "is required: none are stored");
  return stored;
}

/**
 * The certificates of a text that have not expired, without other text between them. Undefined if the field is invalid. Connections ignore
 * expired authorities, and bundles of systems have some.
 */
function checkedCertificates(
  pem: string,
  name: "certificate" | "authorities",
  { check, warn }: Findings,
): string | undefined {
  const field =
    name === "certificate" ? "tls.client_certificate.certificate" : "tls.authorities.certificates";
  if (pem.length > MAX_PEM) {
    check(field, `has ${pem.length} characters; at most ${MAX_PEM} are allowed`);
    return undefined;
  }
  const blocks = (pem.match(CERTIFICATE) ?? []).map((block) =>
    block.replaceAll("X509 CERTIFICATE", "CERTIFICATE"),
  );
  if (blocks.length === 0 || blocks.length > MAX_CERTIFICATES) {
    check(
      field,
      `must hold 1 to ${MAX_CERTIFICATES} certificates in PEM, which begin with -----BEGIN CERTIFICATE-----`,
    );
    return undefined;
  }
  const now = new Date();
  const expired: string[] = [];
  const valid: string[] = [];
  for (const [index, block] of blocks.entries()) {
    const expires = expiryOf(block);
    if (expires === undefined) {
      check(field, `certificate ${index + 1} cannot be read; send it as PEM`);
      return undefined;
    }
    if (expires > now) valid.push(block);
    else expired.push(`certificate ${index + 1} expired at ${expires.toISOString()}`);
    // No server accepts an expired client certificate.
    if (name === "certificate" && valid.length === 0) break;
  }
  if (valid.length === 0) {
    check(field, `${expired[0]}; send a valid one`);
    return undefined;
  }
  if (expired.length > 0) warn(field, `${firstOf(expired)}; left out`);
  return `${valid.join("\n")}\n`;
}

/** The first texts of a list, and the number of the others. */
function firstOf(texts: readonly string[]): string {
  const more = texts.length - MAX_NAMED;
  return [...texts.slice(0, MAX_NAMED), ...(more > 0 ? [`and ${more} more`] : [])].join(", ");
}

/** Undefined if the certificate cannot be read, or its end is no time. */
function expiryOf(pem: string): Date | undefined {
  try {
    // Not `validToDate`, which is any time if the certificate's is none.
    const expires = new Date(new X509Certificate(pem).validTo);
    return Number.isNaN(expires.getTime()) ? undefined : expires;
  } catch {
    return undefined;
  }
}

/** TLS settings for readers: facts of the certificates, never a key. */
export function maskedTls(
  tls: TlsSettings | null,
): Pick<MessageInitShape<typeof MaskedRequestSettingsSchema>, "clientCertificate" | "authorities"> {
  return {
    ...(tls?.client ? { clientCertificate: certificateFacts(tls.client.certificate) } : {}),
    authorities: (tls?.authorities?.match(CERTIFICATE) ?? []).map(certificateFacts),
  };
}

function certificateFacts(pem: string): MessageInitShape<typeof CertificateFactsSchema> {
  const { subject, subjectAltName, issuer, fingerprint256 } = new X509Certificate(pem);
  const expires = expiryOf(pem);
  return {
    subject: shown(subject) || shown(subjectAltName),
    issuer: shown(issuer),
    ...(expires ? { expires: timestampFromDate(expires) } : {}),
    fingerprintSha256: fingerprint256,
  };
}

/** `C=NL\nCN=shop` → `C=NL, CN=shop`. Node has undefined for an empty name, which its types do not say. */
function shown(name: string | undefined): string {
  const line = name?.replaceAll("\n", ", ") ?? "";
  return line.length > MAX_SHOWN_NAME ? `${line.slice(0, MAX_SHOWN_NAME - 1)}…`.toWellFormed() : line;
}

/** The facts of TLS settings for the audit log. */
export function tlsFacts(tls: TlsSettings | null): Facts {
  if (tls === null) return {};
  const { clientCertificate, authorities: trusted = [] } = maskedTls(tls);
  const named = trusted.slice(0, MAX_NAMED).map(inWords);
  // A change of the others must be seen, too.
  if (trusted.length > MAX_NAMED)
    named.push(
      `and ${trusted.length - MAX_NAMED} more (SHA-256 of all ${hash("sha256", tls.authorities ?? "")})`,
    );
  return {
    client_certificate: clientCertificate ? inWords(clientCertificate) : null,
    authorities: named,
  };
}

function inWords({ subject, fingerprintSha256 }: MessageInitShape<typeof CertificateFactsSchema>): string {
  return `${subject} (SHA-256 ${fingerprintSha256})`;
}
