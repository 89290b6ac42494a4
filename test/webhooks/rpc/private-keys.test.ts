import { generateKeyPairSync, type KeyObject, X509Certificate } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { bits, der, identifier, integer, octets, oddNumber, pem, sequence } from "../../support/der.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { webhooks } = api;

const RSA = "2a864886f70d010101";
const DSA = "2a8648ce380401";
const DH = "2a864886f70d010301";
const EC = "2a8648ce3d0201";
const ED25519 = "2b6570";
const PBES2 = "2a864886f70d01050d";
const PBKDF2 = "2a864886f70d01050c";
const SCRYPT = "2b06010401da47040b";
const AES_256_CBC = "60864801650304012a";
const CERTIFICATE_SIGNATURE = sequence(identifier("2a8648ce3d040302"));
/** The size of a number that fills the 16,384 characters of the field with another one. */
const HUGE_BYTES = 5_900;

const named = (text: string) =>
  sequence(der(0x31, sequence(identifier("550403"), der(0x0c, Buffer.from(text)))));
const utcTime = (text: string) => der(0x17, Buffer.from(text));

/** A certificate of a public key, with a signature that nobody verifies. */
function certificateOf(
  key: KeyObject,
  { notAfter = "491231235959Z", subject = "shop", extensions = [] as Buffer[] } = {},
): string {
  const validity = sequence(utcTime("200101000000Z"), utcTime(notAfter));
  const spki = key.export({ type: "spki", format: "der" });
  const more = extensions.length === 0 ? [] : [der(0xa3, sequence(...extensions))];
  const head = [
    der(0xa0, integer(2)),
    integer(5),
    CERTIFICATE_SIGNATURE,
    named("a"),
    validity,
    named(subject),
  ];
  const signature = bits(sequence(integer(1), integer(1)));
  return pem("CERTIFICATE", sequence(sequence(...head, spki, ...more), CERTIFICATE_SIGNATURE, signature));
}

const curve = generateKeyPairSync("ec", { namedCurve: "P-256" });
const rsa = generateKeyPairSync("rsa", { modulusLength: 2_048 });
const usual = certificateOf(curve.publicKey);

const set = (certificate: string, key: string) => async () => {
  const webhookId = await api.register();
  const settings = { tls: { clientCertificate: { certificate, key } } };
  return webhooks.setWebhookRequestSettings({ webhookId, settings });
};

const pkcs8 = (algorithm: Uint8Array, key: Uint8Array) =>
  pem("PRIVATE KEY", sequence(integer(0), algorithm, octets(key)));
/** An RSA key of 2,048 bits with other numbers, by their place: modulus 1, public exponent 2, private exponent 3, and so on. */
function rsaNumbers(changes: Record<number, Uint8Array>, ...more: Uint8Array[]): Buffer {
  const primes = Array.from({ length: 5 }, () => oddNumber(128));
  const numbers = [Buffer.from([0]), oddNumber(256), Buffer.from([1, 0, 1]), oddNumber(256), ...primes];
  return sequence(...numbers.map((number, place) => integer(changes[place] ?? number)), ...more);
}
const rsaKey = (...numbers: Parameters<typeof rsaNumbers>) =>
  pkcs8(sequence(identifier(RSA), der(0x05)), rsaNumbers(...numbers));
const explicit = generateKeyPairSync("ec", { namedCurve: "P-256", paramEncoding: "explicit" }).privateKey;
const exported = (key: KeyObject, type: "pkcs8" | "pkcs1" | "sec1") =>
  key.export({ type, format: "pem" }).toString();
/** The key of a named curve whose inner parameters, which replace the name, are explicit. */
const hidden = pkcs8(
  sequence(identifier(EC), identifier("2a8648ce3d030107")),
  explicit.export({ type: "sec1", format: "der" }),
);
/** Encryption whose key takes 2,147,483,647 iterations to derive. */
const iterated = sequence(
  identifier(PBES2),
  sequence(
    sequence(
      identifier(PBKDF2),
      sequence(octets(oddNumber(16)), integer(Buffer.from([0x7f, 0xff, 0xff, 0xff]))),
    ),
    sequence(identifier(AES_256_CBC), octets(oddNumber(16))),
  ),
);
/** Encryption whose key takes gigabytes of memory to derive. */
const scrypt = sequence(
  identifier(PBES2),
  sequence(
    sequence(
      identifier(SCRYPT),
      sequence(octets(oddNumber(16)), integer(Buffer.from([0x10, 0, 0, 0])), integer(8), integer(1)),
    ),
    sequence(identifier(AES_256_CBC), octets(oddNumber(16))),
  ),
);
const encrypted = (algorithm: Uint8Array) => sequence(algorithm, octets(oddNumber(128)));
const pkcs12 = sequence(
  integer(3),
  sequence(identifier("2a864886f70d010701"), der(0xa0, octets(sequence()))),
  sequence(
    sequence(sequence(identifier("608648016503040201"), der(0x05)), octets(oddNumber(32))),
    octets(oddNumber(8)),
  ),
);
let nested: Buffer = Buffer.alloc(0);
for (let depth = 0; depth < 2_900; depth += 1) nested = sequence(nested);

const OTHER_TYPE = "client_certificate.key is of a type that is not allowed; use RSA with at most 4096 bits";
const NOT_A_KEY = "client_certificate.key must be a private key in PEM";

test.each<[string, string, string[]]>([
  [
    "of another type, which OpenSSL computes with for 40 seconds as it reads them",
    OTHER_TYPE,
    [
      [DSA, [integer(oddNumber(HUGE_BYTES)), integer(oddNumber(32)), integer(2)]],
      [DH, [integer(oddNumber(HUGE_BYTES)), integer(2)]],
    ].map(([type, parameters]) =>
      pkcs8(
        sequence(identifier(type as string), sequence(...(parameters as Buffer[]))),
        integer(oddNumber(HUGE_BYTES)),
      ),
    ),
  ],
  [
    "of a curve that is given by its parameters instead of its name",
    OTHER_TYPE,
    [exported(explicit, "pkcs8"), exported(explicit, "sec1"), hidden],
  ],
  [
    "of RSA with numbers that slow each handshake",
    OTHER_TYPE,
    [
      rsaKey({ 2: oddNumber(256) }),
      rsaKey({ 3: oddNumber(HUGE_BYTES) }),
      ...[4, 5, 6, 7, 8].map((place) => rsaKey({ [place]: oddNumber(256) })),
      rsaKey({ 0: Buffer.from([1]) }, sequence(sequence(integer(3), integer(1), integer(1)))),
      pem("RSA PRIVATE KEY", rsaNumbers({ 6: oddNumber(HUGE_BYTES) })),
    ],
  ],
  [
    "of RSA with a huge modulus",
    "has 88000 bits; at most 4096 are allowed",
    [rsaKey({ 1: oddNumber(11_000) })],
  ],
  [
    "that is encrypted",
    "client_certificate.key is encrypted with a password",
    [iterated, scrypt].map((algorithm) => pem("ENCRYPTED PRIVATE KEY", encrypted(algorithm))),
  ],
  [
    "that is none",
    NOT_A_KEY,
    [
      ...[iterated, scrypt].map((algorithm) => pem("PRIVATE KEY", encrypted(algorithm))),
      pem("PRIVATE KEY", pkcs12),
      pem("PKCS12", pkcs12),
      pem("DSA PRIVATE KEY", sequence(...Array.from({ length: 6 }, () => integer(oddNumber(64))))),
      pem("PRIVATE KEY", nested),
      pkcs8(sequence(identifier(RSA), der(0x05)), nested),
      pem("RSA PRIVATE KEY", sequence(...Array.from({ length: 3_900 }, () => integer(1)))),
      pem("EC PRIVATE KEY", sequence(integer(1))),
      pkcs8(sequence(identifier(ED25519)), octets(oddNumber(31))),
      ...["3084ffffffff", "3080", "30", "3082ffff02", "0201ff", "30840000000002"].map((hex) =>
        pem("PRIVATE KEY", Buffer.from(hex, "hex")),
      ),
      "-----BEGIN PRIVATE KEY-----".repeat(600),
      `-----BEGIN PRIVATE KEY-----${"\n".repeat(16_000)}`,
    ],
  ],
])("a key %s is refused before OpenSSL reads it", async (_, words, keys) => {
  for (const key of keys) {
    expect(key.length).toBeLessThanOrEqual(16_384);
    await expectRefused(set(usual, key)(), Code.InvalidArgument, words);
  }
});

const parameters = pem("EC PARAMETERS", identifier("2a8648ce3d030107"));
const edwards = [generateKeyPairSync("ed25519"), generateKeyPairSync("ed448")];
const long = generateKeyPairSync("rsa", { modulusLength: 4_096 });

test.each<[string, KeyObject, string]>([
  ["of a curve", curve.publicKey, exported(curve.privateKey, "pkcs8")],
  ["of a curve in SEC 1", curve.publicKey, parameters + exported(curve.privateKey, "sec1")],
  ...["P-384", "P-521"].map((namedCurve): [string, KeyObject, string] => {
    const pair = generateKeyPairSync("ec", { namedCurve });
    return [`of ${namedCurve}`, pair.publicKey, exported(pair.privateKey, "pkcs8")];
  }),
  ["of RSA", rsa.publicKey, `Bag Attributes\n  friendlyName: shop\n${exported(rsa.privateKey, "pkcs8")}`],
  ["of RSA in PKCS #1", rsa.publicKey, exported(rsa.privateKey, "pkcs1").replaceAll("\n", "\r\n")],
  ["of RSA with 4,096 bits", long.publicKey, exported(long.privateKey, "pkcs8")],
  ...edwards.map(({ publicKey, privateKey }): [string, KeyObject, string] => [
    `of ${publicKey.asymmetricKeyType}`,
    publicKey,
    exported(privateKey, "pkcs8"),
  ]),
])("a key %s is accepted", async (_, publicKey, key) => {
  const certificate = certificateOf(publicKey);
  const { settings } = await set(certificate, key)();
  const fingerprint = new X509Certificate(certificate).fingerprint256;
  expect(settings?.clientCertificate?.fingerprintSha256).toBe(fingerprint);
});

const KEY = exported(curve.privateKey, "pkcs8");
const extension = (hex: string, value: Uint8Array) => sequence(identifier(hex), octets(value));

test("of a long name of a certificate, answers and the audit log have the first 300 characters", async () => {
  // The limit splits a character.
  const name = `CN=x${"\u{1f600}".repeat(200)}`;
  const certificate = certificateOf(curve.publicKey, { subject: name.slice(3) });
  const { settings } = await set(certificate, KEY)();
  const { subject = "" } = settings?.clientCertificate ?? {};
  expect(subject).toBe(`${name.slice(0, 298)}\ufffd…`);
  const { entries } = await api.audit.listAuditEntries({ pageSize: 1 });
  expect(JSON.stringify(entries[0]?.changes.map(({ after }) => after))).toContain(subject);
  expect(JSON.stringify(entries[0]?.changes.map(({ after }) => after))).not.toContain(name.slice(0, 301));
});

test("a certificate whose end is no time is refused", async () => {
  for (const notAfter of ["zzzzzzzzzzzzZ", "991399999999Z"]) {
    const certificate = certificateOf(curve.publicKey, { notAfter });
    const words = "client_certificate.certificate certificate 1 cannot be read";
    await expectRefused(set(certificate, KEY)(), Code.InvalidArgument, words);
  }
});

test.each<[string, Buffer[]]>([
  [
    "3,000 alternative names",
    [extension("551d11", sequence(...Array.from({ length: 3_000 }, () => der(0x82, Buffer.from("a")))))],
  ],
  ["700 extensions", Array.from({ length: 700 }, () => extension("2a03", octets()))],
  ["700 times the same extension", Array.from({ length: 700 }, () => extension("551d13", sequence()))],
  ["an extension of 2,900 levels", [extension("2a03", nested)]],
])("a certificate with %s is read, and its facts are shown", async (_, extensions) => {
  const certificate = certificateOf(curve.publicKey, { extensions });
  expect(certificate.length).toBeLessThanOrEqual(16_384);
  const { settings } = await set(certificate, KEY)();
  expect(settings?.clientCertificate?.subject).toBe("CN=shop");
});
