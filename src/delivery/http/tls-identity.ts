import { createHash } from "node:crypto";
import type { TlsSettings } from "../../contract/target-rules.ts";

/** The certificates of a webhook's connections. Only requests of the same identity share connections. */
export interface TlsIdentity {
  /** Differs if anything differs. Contains no secret. */
  readonly id: string;
  readonly settings: TlsSettings;
}

/** A value for each identity, such as its TLS context. Bounded: the oldest are evicted first. */
export class IdentityCache<T> {
  readonly #make: (identity: TlsIdentity) => T;
  readonly #max: number;
  readonly #made = new Map<string, T>();

  constructor(max: number, make: (identity: TlsIdentity) => T) {
    this.#max = max;
    this.#make = make;
  }

  /** The number of cached values. */
  get size(): number {
    return this.#made.size;
  }

  of(identity: TlsIdentity): T {
    const known = this.#made.get(identity.id);
    if (known !== undefined) return known;
    const made = this.#make(identity);
    this.#made.set(identity.id, made);
    const [oldest] = this.#made.keys();
    if (this.#made.size > this.#max && oldest !== undefined) this.#made.delete(oldest);
    return made;
  }
}

/** The identity of a webhook's TLS settings; undefined without any. */
export function tlsIdentity(settings: TlsSettings | null): TlsIdentity | undefined {
  if (settings === null) return undefined;
  return { id: createHash("sha256").update(JSON.stringify(settings)).digest("base64"), settings };
}
