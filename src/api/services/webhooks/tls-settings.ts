import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type {
  CertificateFactsSchema,
  MaskedRequestSettingsSchema,
  TlsSettings as TlsMessage,
} from "../../../../gen/webhook/v1/request_settings_pb.ts";
import type { ClientCertificate, TlsSettings } from "../../../contract/target-rules.ts";
import type { Facts } from "../../../db/audit/audit-log.ts";

/** The maximum size of certificates, or of a key, in characters of PEM. */
const MAX_PEM = 16_384;
/** The maximum size of an RSA key, in bits. Each handshake signs with it: 16,384 bits would block the process for half a second. */
const MAX_RSA_BITS = 4_096;
/** The maximum number of certificates in one field. */
const MAX_CERTIFICATES = 10;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** Collects what is wrong with a field. */
export type Check = (field: string, description: string | undefined) => void;

/**
 * The TLS settings of a request, with stored values where it leaves them out. Calls `check` for each field that is
 * wrong, without its value.
 *
 * @returns null for settings that change nothing
 */
export function checkedTls(
  asked: TlsMessage | undefined,
  stored: TlsSettings | null,
  check: Check,
): TlsSettings | null {
  if (!asked?.clientCertificate && !asked?.authorities) return null;
  return {
    client: asked.clientCertificate
      ? clientCertificate(asked.clientCertificate, stored?.client ?? null, check)
      : null,
    authorities: asked.authorities
      ? authorities(asked.authorities.certificates, stored?.authorities ?? null, check)
      : null,
  };
}

function clientCertificate(
  { certificate: pem, key: keyPem }: NonNullable<TlsMessage["clientCertificate"]>,
  stored: ClientCertificate | null,
  check: Check,
): ClientCertificate | null {
  const certificate =
    pem === undefined ? stored?.certificate : checkedCertificates(pem, "certificate", check);
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
  if (pem.length > MAX_PEM) {
    check(field, `has ${pem.length} characters; at most ${MAX_PEM} are allowed`);
    return undefined;
  }
  if (/ENCRYPTED/.test(pem)) {
    check(field, "is encrypted with a password; send it decrypted, such as by `openssl pkey -in key.pem`");
    return undefined;
  }
  let key: KeyObject;
  try {
    key = createPrivateKey(pem);
  } catch {
    check(field, "must be a private key in PEM, which begins with -----BEGIN PRIVATE KEY-----");
    return undefined;
  }
  const { modulusLength: bits = 0 } = key.asymmetricKeyDetails ?? {};
  if (bits <= MAX_RSA_BITS) return key;
  check(
    field,
    `has ${bits} bits; at most ${MAX_RSA_BITS} are allowed: use a shorter RSA key, or an elliptic curve`,
  );
  return undefined;
}

function authorities(pem: string | undefined, stored: string | null, check: Check): string | null {
  if (pem !== undefined) return checkedCertificates(pem, "authorities", check) ?? null;
  if (stored === null) check("tls.authorities.certificates", "is required: none are stored");
  return stored;
}

/** The certificates of a text, without other text between them. Undefined if the field is invalid. */
function checkedCertificates(
  pem: string,
  name: "certificate" | "authorities",
  check: Check,
): string | undefined {
  const field =
    name === "certificate" ? "tls.client_certificate.certificate" : "tls.authorities.certificates";
  if (pem.length > MAX_PEM) {
    check(field, `has ${pem.length} characters; at most ${MAX_PEM} are allowed`);
    return undefined;
  }
  const blocks = pem.match(CERTIFICATE) ?? [];
  if (blocks.length === 0 || blocks.length > MAX_CERTIFICATES) {
    check(
      field,
      `must hold 1 to ${MAX_CERTIFICATES} certificates in PEM, which begin with -----BEGIN CERTIFICATE-----`,
    );
    return undefined;
  }
  for (const [index, block] of blocks.entries()) {
    const expired = expiryOf(block);
    if (expired === undefined) {
      check(field, `certificate ${index + 1} cannot be read; send it as PEM`);
      return undefined;
    }
    if (expired <= new Date()) {
      check(field, `certificate ${index + 1} expired at ${expired.toISOString()}; send a valid one`);
      return undefined;
    }
  }
  return `${blocks.join("\n")}\n`;
}

function expiryOf(pem: string): Date | undefined {
  try {
    return new X509Certificate(pem).validToDate;
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
  const { subject, subjectAltName, issuer, validToDate, fingerprint256 } = new X509Certificate(pem);
  return {
    subject: oneLine(subject) || (subjectAltName ?? ""),
    issuer: oneLine(issuer),
    expires: timestampFromDate(validToDate),
    fingerprintSha256: fingerprint256,
  };
}

/** `C=NL\nCN=shop` → `C=NL, CN=shop`. Node has undefined for an empty name, which its types do not say. */
function oneLine(name: string | undefined): string {
  return name?.replaceAll("\n", ", ") ?? "";
}

/** The facts of TLS settings for the audit log. */
export function tlsFacts(tls: TlsSettings | null): Facts {
  if (tls === null) return {};
  const { clientCertificate, authorities: trusted = [] } = maskedTls(tls);
  return {
    client_certificate: clientCertificate ? inWords(clientCertificate) : null,
    authorities: trusted.map(inWords),
  };
}

function inWords({ subject, fingerprintSha256 }: MessageInitShape<typeof CertificateFactsSchema>): string {
  return `${subject} (SHA-256 ${fingerprintSha256})`;
}
