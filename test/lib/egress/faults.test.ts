import { createServer } from "node:net";
import { getSystemErrorMap } from "node:util";
import { errors } from "undici";
import { expect, test } from "vitest";
import { describeFault, isTlsFault } from "../../../src/lib/egress/faults.ts";
import { aClient, listening, send } from "../../delivery/http-parts.ts";

/** The codes of OpenSSL's X509_V_ERR that Node names. It calls the others UNSPECIFIED. */
const NAMED =
  "UNABLE_TO_GET_ISSUER_CERT UNABLE_TO_GET_CRL UNABLE_TO_DECRYPT_CERT_SIGNATURE UNABLE_TO_DECRYPT_CRL_SIGNATURE UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY CERT_SIGNATURE_FAILURE CRL_SIGNATURE_FAILURE CERT_NOT_YET_VALID CERT_HAS_EXPIRED CRL_NOT_YET_VALID CRL_HAS_EXPIRED ERROR_IN_CERT_NOT_BEFORE_FIELD ERROR_IN_CERT_NOT_AFTER_FIELD ERROR_IN_CRL_LAST_UPDATE_FIELD ERROR_IN_CRL_NEXT_UPDATE_FIELD OUT_OF_MEM DEPTH_ZERO_SELF_SIGNED_CERT SELF_SIGNED_CERT_IN_CHAIN UNABLE_TO_GET_ISSUER_CERT_LOCALLY UNABLE_TO_VERIFY_LEAF_SIGNATURE CERT_CHAIN_TOO_LONG CERT_REVOKED INVALID_CA PATH_LENGTH_EXCEEDED INVALID_PURPOSE CERT_UNTRUSTED CERT_REJECTED HOSTNAME_MISMATCH".split(
    " ",
  );
/** OpenSSL's messages for the codes that Node does not name. */
const UNNAMED = [
  "unspecified certificate verification error",
  "issuer certificate doesn't have a public key",
  "subject issuer mismatch",
  "authority and subject key identifier mismatch",
  "authority and issuer serial number mismatch",
  "key usage does not include certificate signing",
  "unable to get CRL issuer certificate",
  "unhandled critical extension",
  "key usage does not include CRL signing",
  "unhandled critical CRL extension",
  "invalid non-CA certificate (has CA markings)",
  "proxy path length constraint exceeded",
  "key usage does not include digital signature",
  "proxy certificates not allowed, please set the appropriate flag",
  "invalid or inconsistent certificate extension",
  "invalid or inconsistent certificate policy extension",
  "no explicit policy",
  "different CRL scope",
  "unsupported extension feature",
  "RFC 3779 resource not subset of parent's resources",
  "permitted subtree violation",
  "excluded subtree violation",
  "name constraints minimum and maximum not supported",
  "application verification failure",
  "unsupported name constraint type",
  "unsupported or invalid name constraint syntax",
  "unsupported or invalid name syntax",
  "CRL path validation error",
  "path loop",
  "Suite B: certificate version invalid",
  "Suite B: invalid public key algorithm",
  "Suite B: invalid ECC curve",
  "Suite B: invalid signature algorithm",
  "Suite B: curve not allowed for this LOS",
  "Suite B: cannot sign P-384 with P-256",
  "email address mismatch",
  "IP address mismatch",
  "no matching DANE TLSA records",
  "EE certificate key too weak",
  "CA certificate key too weak",
  "CA signature digest algorithm too weak",
  "invalid certificate verification context",
  "issuer certificate lookup error",
  "Certificate Transparency required, but no valid SCTs found",
  "proxy subject name violation",
  "OCSP verification needed",
  "OCSP verification failed",
  "OCSP unknown cert",
  "Cannot find certificate signature algorithm",
  "subject signature algorithm and issuer public key algorithm mismatch",
  "cert info signature and signature algorithm mismatch",
  "Path length invalid for non-CA cert",
  "Path length given without key usage keyCertSign",
  "Key usage keyCertSign invalid for non-CA cert",
  "Issuer name empty",
  "Subject name empty",
  "Missing Authority Key Identifier",
  "Missing Subject Key Identifier",
  "Empty Subject Alternative Name extension",
  "Subject empty and Subject Alt Name extension not critical",
  "Basic Constraints of CA cert not marked critical",
  "Authority Key Identifier marked critical",
  "Subject Key Identifier marked critical",
  "CA cert does not include key usage extension",
  "Using cert extension requires at least X509v3",
  "Certificate public key has explicit ECC parameters",
];
/** Codes of Node and OpenSSL in a TLS handshake that no receiver here causes. */
const OF_TLS = [
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "ERR_TLS_DH_PARAM_SIZE",
  "ERR_TLS_HANDSHAKE_TIMEOUT",
  "ERR_TLS_INVALID_CONTEXT",
  "ERR_TLS_INVALID_STATE",
  "ERR_TLS_RENEGOTIATION_DISABLED",
  "ERR_SSL_NO_CIPHER_MATCH",
  "ERR_SSL_BAD_SIGNATURE",
  "ERR_SSL_DH_KEY_TOO_SMALL",
  "ERR_SSL_EE_KEY_TOO_SMALL",
  "ERR_SSL_LEGACY_SIGALG_DISALLOWED_OR_UNSUPPORTED",
  "ERR_SSL_UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
  "ERR_SSL_UNEXPECTED_EOF_WHILE_READING",
  "ERR_SSL_HTTP_REQUEST",
  "ERR_OSSL_PEM_NO_START_LINE",
  "ERR_OSSL_X509_KEY_VALUES_MISMATCH",
  "ERR_OSSL_EVP_UNSUPPORTED",
];

const coded = (code: string, message = code) => Object.assign(new Error(message), { code });
const ofUndici = Object.values(errors).map(
  (Kind) => new (Kind as new (...args: unknown[]) => Error)(undefined, undefined, {}),
);
const SECRET = "Bearer tok-0123456789";

const FAULTS = [
  ...NAMED.map((code) => coded(code)),
  ...UNNAMED.map((message) => coded("UNSPECIFIED", message)),
  ...OF_TLS.map((code) => coded(code)),
  ...[...getSystemErrorMap().values()].map(([code, message]) => coded(code, message)),
  ...ofUndici,
  new errors.HTTPParserError("Response does not match the HTTP/1.1 protocol (Invalid header token)"),
  coded("HPE_INVALID_HEADER_TOKEN"),
  coded("ERR_INVALID_CHAR", SECRET),
  new TypeError(SECRET),
];

/** Cause, remedy and code: `connection refused; check that … (ECONNREFUSED)`. */
const EXPLAINED = /^[^;]{8,}(; |: )[a-z].{15,} \([\w/]+\)$/;

test.each(FAULTS.map((error) => [describeFault(error), error] as const))(
  "an error says its cause and a remedy: %s",
  (words, error) => {
    expect(words).toMatch(EXPLAINED);
    expect(words).not.toMatch(/request failed|tok-/);
    if ("code" in error && error.code === "UNSPECIFIED") expect(words).toContain(error.message);
  },
);

test("errors that say no more than that the service failed are those which a receiver cannot cause", () => {
  const codes = FAULTS.map(describeFault).filter((words) => words.startsWith("this service failed"));
  expect(codes.map((words) => words.replace(/.*\((\w+)\)$/, "$1"))).not.toEqual(
    expect.arrayContaining([
      expect.stringMatching(
        /^(E(?!RR_)[A-Z]|HPE_|ERR_(SSL|TLS|OSSL)|UND_ERR_(SOCKET|CONNECT|HEADERS|BODY|RES_))/,
      ),
    ]),
  );
});

test("errors of certificates and of TLS count as faults of TLS, and no others", () => {
  for (const code of [...NAMED, "UNSPECIFIED", ...OF_TLS])
    expect([code, isTlsFault(coded(code))]).toEqual([code, true]);
  for (const code of ["ECONNRESET", "UND_ERR_SOCKET", "ENOTFOUND"])
    expect(isTlsFault(coded(code))).toBe(false);
});

const ALERTS = [
  10, 20, 21, 22, 30, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 60, 70, 71, 80, 86, 90, 100, 109, 110,
  111, 112, 113, 114, 115, 116, 120, 121,
];

test.each(ALERTS)(
  "an attempt that the receiver ends with TLS alert %i says its cause and a remedy",
  async (alert) => {
    const server = createServer((socket) =>
      socket.once("data", () => socket.write(Buffer.from([21, 3, 3, 0, 2, 2, alert]))),
    );
    const { origin } = await listening(server);
    const { error, status } = await send(aClient(), origin);
    expect([status, error]).toEqual([null, expect.stringMatching(EXPLAINED)]);
    if (alert === 120) expect(error).toMatch(/only speaks HTTP\/2.*: enable HTTP\/1.1/);
  },
);
