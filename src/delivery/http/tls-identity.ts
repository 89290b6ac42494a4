import { createHash } from "node:crypto";
import type { TlsSettings } from "../../contract/target-rules.ts";

/** The certificates of a webhook's connections. Only requests of the same identity share connections. */
export interface TlsIdentity {
  /** Differs if anything differs. Contains no secret. */
  readonly id: string;
  readonly settings: TlsSettings;
}

/** The identity of a webhook's TLS settings; undefined without any. */
export function tlsIdentity(settings: TlsSettings | null): TlsIdentity | undefined {
  if (settings === null) return undefined;
  return { id: createHash("sha256").update(JSON.stringify(settings)).digest("base64"), settings };
}
