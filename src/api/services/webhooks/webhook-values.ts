import type { CircuitBreakerSettings } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../contract/catalogue.ts";
import { DomainError, type FieldViolation } from "../../../contract/errors.ts";
import { invisibleCharacter } from "../../../contract/invisible-characters.ts";
import type { TargetRules } from "../../../contract/target-rules.ts";
import { BREAKER_BOUNDS } from "../../../contract/webhooks/circuit-breaker.ts";
import type { ApiKeyRow } from "../../../db/keys/api-keys.ts";
import type { BreakerSettings } from "../../../db/webhooks/breakers.ts";
import { invalidFields } from "../../errors/errors.ts";
import { assertText, isProcess, unknownProcess } from "../messages.ts";

/** The maximum length of a webhook's name, in characters. */
const MAX_NAME_CHARACTERS = 100;
/** The maximum size of a test event's payload, in bytes. As a JSON string it fits into a request of 64 KiB. */
const MAX_TEST_PAYLOAD_BYTES = 32_768;
/** The maximum rate limit of a webhook, in deliveries per second. */
const MAX_RATE_LIMIT = 10_000;

/** @throws DomainError INVALID_ARGUMENT if no webhook can have the URL */
export function checkedAddress(targets: TargetRules, url: string): { url: string; targetUrl: string } {
  // URL parsing drops some of these, but the URL is stored as given.
  if (/\p{Cc}/u.test(url) || !url.isWellFormed()) {
    throw invalidFields([{ field: "url", description: "must not hold control characters" }]);
  }
  return { url, targetUrl: targets.normalise(url) };
}

/** Null for an empty name. @throws DomainError INVALID_ARGUMENT */
export function checkedName(name: string): string | null {
  assertText("name", name, MAX_NAME_CHARACTERS);
  const invisible = invisibleCharacter(name);
  if (invisible) {
    throw invalidFields([{ field: "name", description: `must not hold ${invisible}, which cannot be seen` }]);
  }
  return name.trim() || null;
}

/** The body of a test event. @throws DomainError INVALID_ARGUMENT unless it is a JSON object of an allowed size */
export function checkedPayload(payload: string): string {
  const refuse = (description: string) => invalidFields([{ field: "payload", description }]);
  const bytes = Buffer.byteLength(payload);
  if (bytes > MAX_TEST_PAYLOAD_BYTES) {
    throw refuse(`is ${bytes} bytes, more than the ${MAX_TEST_PAYLOAD_BYTES} allowed`);
  }
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch (error) {
    throw refuse(`is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw refuse('must be a JSON object, such as {"OrderId": 1}');
  }
  if (!payload.isWellFormed()) throw refuse("must be valid Unicode text");
  return payload;
}

/** @throws DomainError INVALID_ARGUMENT */
export function checkedRateLimit(rateLimit: number): number {
  if (rateLimit >= 1 && rateLimit <= MAX_RATE_LIMIT) return rateLimit;
  throw invalidFields([
    { field: "rate_limit", description: `must be 1 to ${MAX_RATE_LIMIT} deliveries a second, or unset` },
  ]);
}

/** Null for no breaker. @throws DomainError INVALID_ARGUMENT that names every wrong number */
export function checkedBreaker(asked: CircuitBreakerSettings): BreakerSettings | null {
  const wrong: FieldViolation[] = [];
  const numbers = { failures: 0, failingSeconds: 0, probeSeconds: 0, disableSeconds: 0 };
  for (const name of Object.keys(numbers) as (keyof typeof numbers)[]) {
    const { min, max, default: usual } = BREAKER_BOUNDS[name];
    const value = asked[name] === 0 ? usual : asked[name];
    numbers[name] = value;
    if (value >= min && value <= max) continue;
    const field = `circuit_breaker.${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`;
    wrong.push({ field, description: `must be ${min} to ${max}, or 0 for ${usual}` });
  }
  if (wrong.length > 0) throw invalidFields(wrong);
  if (!asked.enabled) return null;
  return { ...numbers, disableOnGone: asked.disableOnGone, resendFailed: asked.resendFailed };
}

/**
 * Event types that a caller subscribes to or removes.
 *
 * @throws DomainError INVALID_ARGUMENT if one of them is none
 */
export function checkedProcesses(field: string, processes: readonly number[]): readonly number[] {
  const unknown = processes.find((process) => !isProcess(process));
  if (unknown === undefined) return [...new Set(processes)];
  throw invalidFields([{ field, description: unknownProcess(unknown) }]);
}

/**
 * The key determines which event types may be subscribed to (contract, section 5, rule 4).
 *
 * @throws DomainError PERMISSION_DENIED
 */
export function assertMaySubscribe(caller: ApiKeyRow, process: number): void {
  if (caller.allowedProcesses.length === 0 || caller.allowedProcesses.includes(process)) return;
  throw new DomainError(
    "PERMISSION_DENIED",
    `the API key may not subscribe to ${processName(process)}, only to ${caller.allowedProcesses.map(processName).join(", ")}`,
    { reason: "PROCESS_NOT_ALLOWED" },
  );
}
