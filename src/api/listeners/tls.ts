import { constants } from "node:crypto";
import type { SecureServerOptions } from "node:http2";

/** Cipher suites with forward secrecy and authenticated encryption, fastest first. */
const SUITES = [
  // TLS 1.3.
  "TLS_AES_128_GCM_SHA256",
  "TLS_AES_256_GCM_SHA384",
  "TLS_CHACHA20_POLY1305_SHA256",
  // TLS 1.2.
  "ECDHE-ECDSA-AES128-GCM-SHA256",
  "ECDHE-RSA-AES128-GCM-SHA256",
  "ECDHE-ECDSA-AES256-GCM-SHA384",
  "ECDHE-RSA-AES256-GCM-SHA384",
  "ECDHE-ECDSA-CHACHA20-POLY1305",
  "ECDHE-RSA-CHACHA20-POLY1305",
].join(":");

/** TLS settings for connections that the service terminates. Node's command line and environment cannot weaken them. */
export const TLS_POLICY: SecureServerOptions = {
  minVersion: "TLSv1.2",
  ciphers: SUITES,
  honorCipherOrder: true,
  // A renegotiation costs the server more than the client.
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
};
