import type { ApiKeyRow } from "../../db/keys/api-keys.ts";

/** The header with the admission of a call from REST to the in-memory services. External calls never reach these. */
export const ADMISSION_HEADER = "X-Admission";

/**
 * The keys of REST requests that were authenticated before their bodies were read. The in-memory transport transfers
 * only headers, so a call has the name of its admission, by which the gate finds the key.
 */
export class Admissions {
  readonly #keys = new Map<string, ApiKeyRow>();
  #entered = 0;

  /** Stores a key. Returns the name of the admission. */
  enter(key: ApiKeyRow): string {
    this.#entered += 1;
    const name = String(this.#entered);
    this.#keys.set(name, key);
    return name;
  }

  /** The key of an admission; undefined if it has ended. */
  find(name: string): ApiKeyRow | undefined {
    return this.#keys.get(name);
  }

  /** Ends an admission. */
  leave(name: string): void {
    this.#keys.delete(name);
  }
}
