import type { Identity } from "../../calls/index.ts";

/** The header with the admission of a call from REST to the in-memory services. External calls never reach these. */
export const ADMISSION_HEADER = "X-Admission";

/** An authenticated caller of REST. */
export interface Admission {
  identity: Identity;
  /** Reads the caller's address. */
  address: () => string;
}

/**
 * The callers of REST requests that were authenticated before their bodies were read. The in-memory transport transfers
 * only headers, so a call has the name of its admission, by which the gate finds the caller.
 */
export class Admissions {
  readonly #admissions = new Map<string, Admission>();
  #entered = 0;

  /** Stores a caller. Returns the name of the admission. */
  enter(admission: Admission): string {
    this.#entered += 1;
    const name = String(this.#entered);
    this.#admissions.set(name, admission);
    return name;
  }

  /** The caller of an admission; undefined if it has ended. */
  find(name: string): Admission | undefined {
    return this.#admissions.get(name);
  }

  /** Ends an admission. */
  leave(name: string): void {
    this.#admissions.delete(name);
  }
}
