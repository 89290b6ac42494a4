import type { ApiKeyRow } from "../../db/keys/api-keys.ts";

/** Names the admission of a call from REST to the services in memory. No other caller reaches those. */
export const ADMISSION_HEADER = "X-Admission";

/**
 * The keys of REST requests that were admitted before their bodies were read. The library's transport in memory carries
 * headers only, so a call carries the name of its admission, and the gate takes the key from here.
 */
export class Admissions {
  readonly #keys = new Map<string, ApiKeyRow>();
  #entered = 0;

  /** Remembers a key; answers the name of the admission. */
  enter(key: ApiKeyRow): string {
    this.#entered += 1;
    const name = String(this.#entered);
    this.#keys.set(name, key);
    return name;
  }

  /** The key of an admission; undefined when it has ended. */
  find(name: string): ApiKeyRow | undefined {
    return this.#keys.get(name);
  }

  /** Ends an admission. */
  leave(name: string): void {
    this.#keys.delete(name);
  }
}
