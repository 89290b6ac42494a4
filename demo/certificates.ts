// Must be loaded before @peculiar/x509.
import "reflect-metadata";
import { createPrivateKey, randomUUID, webcrypto } from "node:crypto";
import { isIP } from "node:net";
import * as x509 from "@peculiar/x509";

/** A certificate and its private key, in PEM. */
export interface Certificate {
  cert: string;
  key: string;
}

/** Options of a certificate. It is valid for a month unless given. */
export interface IssueOptions {
  /** The distinguished name; may be empty. Defaults to the first host as common name. */
  subject?: string;
  notBefore?: Date;
  notAfter?: Date;
  client?: boolean;
}

/** A local certificate authority for receivers on this machine. */
export interface LocalAuthority {
  /** The authority's certificate in PEM, which clients must trust. */
  cert: string;
  /** Issues a certificate for host names and addresses, of a server unless `client` is set. */
  issue(hosts: string[], options?: IssueOptions): Promise<Certificate>;
}

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const DAY = 86_400_000;

/** Creates an authority that exists only in this process. */
export async function createLocalAuthority(): Promise<LocalAuthority> {
  const crypto = webcrypto;
  x509.cryptoProvider.set(crypto as never);
  const keys = await crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
  // A unique name, because clients identify authorities by name.
  const name = `CN=Local receivers ${randomUUID()}`;
  const authority = await x509.X509CertificateGenerator.createSelfSigned({
    name,
    keys,
    signingAlgorithm: ALGORITHM,
    notBefore: new Date(Date.now() - 30 * DAY),
    notAfter: new Date(Date.now() + 30 * DAY),
    extensions: [
      new x509.BasicConstraintsExtension(true, 1, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
    ],
  });

  async function issue(hosts: string[], options: IssueOptions = {}): Promise<Certificate> {
    const own = await crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
    const certificate = await x509.X509CertificateGenerator.create({
      subject: options.subject ?? `CN=${hosts[0]}`,
      issuer: name,
      publicKey: own.publicKey,
      signingKey: keys.privateKey,
      signingAlgorithm: ALGORITHM,
      notBefore: options.notBefore ?? new Date(Date.now() - DAY),
      notAfter: options.notAfter ?? new Date(Date.now() + 29 * DAY),
      extensions: [
        new x509.SubjectAlternativeNameExtension(
          hosts.map((value) => ({ type: isIP(value) === 0 ? "dns" : "ip", value })),
        ),
        new x509.ExtendedKeyUsageExtension([
          options.client ? x509.ExtendedKeyUsage.clientAuth : x509.ExtendedKeyUsage.serverAuth,
        ]),
      ],
    });
    const pkcs8 = Buffer.from(await crypto.subtle.exportKey("pkcs8", own.privateKey));
    const key = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
    return {
      cert: certificate.toString("pem"),
      key: key.export({ type: "pkcs8", format: "pem" }).toString(),
    };
  }

  return { cert: authority.toString("pem"), issue };
}
