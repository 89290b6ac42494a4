import { DomainError } from "../../contract/errors.ts";

/** The maximum number of exports that a key has open at once, per process: each holds up to 1.5 MiB until its client reads. */
const MAX_EXPORTS_PER_KEY = 20;
const RETRY_AFTER_MS = 1_000;

/** Limits the exports that each key has open. */
export class OpenExports {
  readonly #open = new Map<string, number>();

  /**
   * Counts one more export of a key. Returns a function that ends it.
   *
   * @param signal ends it too, when the call ends: its client may not read what was written
   * @throws DomainError RESOURCE_EXHAUSTED if the key has MAX_EXPORTS_PER_KEY open
   */
  enter(keyId: string, signal: AbortSignal): () => void {
    const open = this.#open.get(keyId) ?? 0;
    if (open >= MAX_EXPORTS_PER_KEY) {
      throw new DomainError(
        "LIMIT_REACHED",
        `this API key has ${MAX_EXPORTS_PER_KEY} exports open, the maximum; read them to their end, or cancel some`,
        { retryAfterMs: RETRY_AFTER_MS },
      );
    }
    this.#open.set(keyId, open + 1);
    let hasLeft = false;
    const leave = () => {
      signal.removeEventListener("abort", leave);
      if (hasLeft) return;
      hasLeft = true;
      const left = (this.#open.get(keyId) ?? 0) - 1;
      if (left > 0) this.#open.set(keyId, left);
      else this.#open.delete(keyId);
    };
    signal.addEventListener("abort", leave);
    return leave;
  }
}
