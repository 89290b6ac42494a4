import { Code, type ConnectError, type ContextValues, createContextKey } from "@connectrpc/connect";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { DomainError } from "../../contract/errors.ts";
import { callerIn } from "../auth/auth.ts";
import { reasonOf, refusal } from "../errors/errors.ts";
import type { HeldCall } from "./held-bytes.ts";

/** The window in which refused bytes are counted, in seconds. */
const WINDOW_S = 60;
/** The maximum bytes of a key's refused messages in the window. */
const MAX_REFUSED_BYTES = 64 * 1_024 * 1_024;
/** Messages up to this size are always read and never counted, in bytes. They cost no more than their call. */
const UNCOUNTED_BYTES = 64 * 1_024;

const heldCall = createContextKey<HeldCall | null>(null, { description: "the bytes held by the call" });

/** Called once for each refused call. */
export type OnRefused = (values: ContextValues | undefined, error: ConnectError) => void;

/** Stores a call's account of bytes, which `RefusedBytes` charges if the call is refused. */
export function withHeldCall(values: ContextValues, call: HeldCall): ContextValues {
  return values.set(heldCall, call);
}

/**
 * Limits what a key's invalid messages cost. Reading and checking a message of 4 MiB takes milliseconds, which a key
 * that sends many of them would take from the calls of all others. A key whose refused messages exceed 64 MiB in a
 * minute may send only uncompressed messages of up to 64 KiB until the minute ends. Accepted messages are never counted.
 *
 * Counts in this process only, because its event loop is what is protected.
 */
export class RefusedBytes {
  readonly #limiter = new RateLimiterMemory({ points: MAX_REFUSED_BYTES, duration: WINDOW_S });

  /** Counts the bytes that a refused call holds, if the error is about its message. */
  charge(values: ContextValues, error: ConnectError): void {
    const bytes = values.get(heldCall)?.held ?? 0;
    const keyId = bytes > UNCOUNTED_BYTES ? callerIn(values)?.id : undefined;
    if (keyId === undefined) return;
    const isAboutMessage = error.code === Code.InvalidArgument || reasonOf(error) === "MESSAGE_TOO_LARGE";
    if (isAboutMessage) void this.#limiter.penalty(keyId, bytes);
  }

  /**
   * Checks that a call may hold this number of bytes. Returns undefined for messages that are never counted.
   *
   * @throws ConnectError RESOURCE_EXHAUSTED with a retry delay if its key has sent too many refused bytes
   */
  assertWithin(values: ContextValues, bytes: number): Promise<void> | undefined {
    const keyId = bytes > UNCOUNTED_BYTES ? callerIn(values)?.id : undefined;
    return keyId === undefined ? undefined : this.#assertKeyWithin(keyId);
  }

  async #assertKeyWithin(keyId: string): Promise<void> {
    const counted = await this.#limiter.get(keyId);
    if (counted && counted.consumedPoints > MAX_REFUSED_BYTES) throw refusal(exhausted(counted.msBeforeNext));
  }
}

function exhausted(waitMs: number): DomainError {
  return new DomainError(
    "RESOURCE_EXHAUSTED",
    `the API key has sent more than ${MAX_REFUSED_BYTES / 1_048_576} MiB of refused messages within ${WINDOW_S} s; messages above ` +
      `${UNCOUNTED_BYTES / 1_024} KiB and compressed ones are not read for another ${Math.ceil(waitMs / 1_000)} s; correct the messages that were refused`,
    { retryAfterMs: waitMs },
  );
}
