import { createPrivateKey, type KeyObject } from "node:crypto";

/** The maximum size of an RSA key, in bits. Each handshake signs with it: 16,384 bits would block the process for half a second. */
const MAX_RSA_BITS = 4_096;
/** The maximum size of the public exponent of an RSA key, in bytes. */
const MAX_RSA_EXPONENT_BYTES = 8;
/** The size by which a prime of an RSA key may exceed half of the modulus, in bits. */
const MAX_IMBALANCE_BITS = 32;
/** The maximum size of a key that is not RSA, in bytes. The largest named curve takes less than half. */
const MAX_CURVE_KEY_BYTES = 512;

const PEM = /-----BEGIN ((?:RSA |EC )?PRIVATE KEY)-----([\sA-Za-z0-9+/=]+)-----END \1-----/;
/** The formats of DER, by the label in PEM. */
const FORMATS = { "PRIVATE KEY": "pkcs8", "RSA PRIVATE KEY": "pkcs1", "EC PRIVATE KEY": "sec1" } as const;
type Format = (typeof FORMATS)[keyof typeof FORMATS];

/** Object identifiers of key types, in hexadecimal DER. RSA, and RSA for PSS signatures only. */
const RSA = ["2a864886f70d010101", "2a864886f70d01010a"];
const ELLIPTIC_CURVE = "2a8648ce3d0201";
/** Ed25519 and Ed448. */
const EDWARDS_CURVES = ["2b6570", "2b6571"];

/** Tags of DER. */
const TAG = { integer: 0x02, octets: 0x04, identifier: 0x06, sequence: 0x30, curve: 0xa0 };

const NOT_A_KEY = "must be a private key in PEM, which begins with -----BEGIN PRIVATE KEY-----";
const OTHER_TYPE = `is of a type that is not allowed; use RSA with at most ${MAX_RSA_BITS} bits and two primes, a named elliptic curve such as P-256, Ed25519 or Ed448`;

/**
 * Reads a private key. OpenSSL computes with some kinds of keys as it reads them: a DSA key of 16,000 characters would block the process
 * for 40 seconds. So the type and the sizes of numbers are checked before.
 *
 * @param pem of bounded size. Text around the key is ignored
 * @returns the key, or what is wrong with it, to read after the field's name
 */
export function readPrivateKey(pem: string): KeyObject | string {
  if (/ENCRYPTED/.test(pem))
    return "is encrypted with a password; send it decrypted, such as by `openssl pkey -in key.pem`";
  const [, label, base64 = ""] = PEM.exec(pem) ?? [];
  if (label === undefined) return NOT_A_KEY;
  const type = FORMATS[label as keyof typeof FORMATS];
  const der = Buffer.from(base64, "base64");
  const problem = problemOf(der, type);
  if (problem !== undefined) return problem;
  try {
    return createPrivateKey({ key: der, format: "der", type });
  } catch {
    return NOT_A_KEY;
  }
}

/** What is wrong with the type or the numbers of a key; undefined if OpenSSL can read it quickly. */
function problemOf(der: Buffer, type: Format): string | undefined {
  const [key] = valuesOf(der);
  if (key?.tag !== TAG.sequence) return NOT_A_KEY;
  if (type === "pkcs1") return rsaProblem(key.content);
  if (type === "sec1") return curveProblem(der);
  const [version, algorithm, inner] = valuesOf(key.content);
  if (version?.tag !== TAG.integer || algorithm?.tag !== TAG.sequence || inner?.tag !== TAG.octets)
    return NOT_A_KEY;
  const [identifier, parameters] = valuesOf(algorithm.content);
  const name = identifier?.tag === TAG.identifier ? identifier.content.toString("hex") : "";
  if (RSA.includes(name)) {
    const [numbers] = valuesOf(inner.content);
    return numbers?.tag === TAG.sequence ? rsaProblem(numbers.content) : NOT_A_KEY;
  }
  if (name === ELLIPTIC_CURVE)
    return parameters?.tag === TAG.identifier ? curveProblem(inner.content) : OTHER_TYPE;
  return EDWARDS_CURVES.includes(name) && der.length <= MAX_CURVE_KEY_BYTES ? undefined : OTHER_TYPE;
}

/**
 * What is wrong with an RSA key (RFC 8017, A.1.2). Each handshake computes with its numbers, so that none may be larger than its
 * modulus takes.
 */
function rsaProblem(content: Buffer): string | undefined {
  const values = valuesOf(content);
  // A tenth value has further primes.
  if (values.length === 10) return OTHER_TYPE;
  if (values.length !== 9 || values.some(({ tag }) => tag !== TAG.integer)) return NOT_A_KEY;
  const [, modulus, exponent, secret, ...parts] = values.map((each) => bitsOf(each.content)) as [
    ...[number, number, number, number],
    ...number[],
  ];
  if (modulus > MAX_RSA_BITS)
    return `has ${modulus} bits; at most ${MAX_RSA_BITS} are allowed: use a shorter RSA key, or an elliptic curve`;
  const isUsual =
    exponent <= 8 * MAX_RSA_EXPONENT_BYTES &&
    secret <= modulus &&
    parts.every((bits) => bits <= modulus / 2 + MAX_IMBALANCE_BITS);
  return isUsual ? undefined : OTHER_TYPE;
}

/** What is wrong with the key of an elliptic curve (RFC 5915). */
function curveProblem(der: Buffer): string | undefined {
  const [key] = valuesOf(der);
  if (key?.tag !== TAG.sequence) return NOT_A_KEY;
  // Parameters in the inner key override the parameters of PKCS #8.
  const parameters = valuesOf(key.content).find(({ tag }) => tag === TAG.curve);
  const isNamed = !parameters || valuesOf(parameters.content)[0]?.tag === TAG.identifier;
  return isNamed && der.length <= MAX_CURVE_KEY_BYTES ? undefined : OTHER_TYPE;
}

/** The size of a positive integer in DER, in bits. */
function bitsOf(content: Buffer): number {
  const first = content.findIndex((byte) => byte !== 0);
  if (first === -1) return 0;
  return 8 * (content.length - first) - (Math.clz32(content[first] as number) - 24);
}

/** A value in DER. */
interface Value {
  tag: number;
  content: Buffer;
}

/** The values that follow each other in DER, up to the first that cannot be read. */
function valuesOf(der: Buffer): Value[] {
  const values: Value[] = [];
  let at = 0;
  while (at + 2 <= der.length) {
    const tag = der[at] as number;
    let length = der[at + 1] as number;
    at += 2;
    if (length > 0x7f) {
      const bytes = length & 0x7f;
      // Longer lengths exceed any key, and a length of 0 bytes is not DER.
      if (bytes < 1 || bytes > 3 || at + bytes > der.length) return values;
      length = der.readUIntBE(at, bytes);
      at += bytes;
    }
    if (at + length > der.length) return values;
    values.push({ tag, content: der.subarray(at, at + length) });
    at += length;
  }
  return values;
}
