import type { CircuitBreakerSettings } from "../../../gen/webhook/v1/webhook_pb.ts";
import { invalidField, invalidFields } from "../../calls/errors/index.ts";
import { type ApiKeyRow, assertText, unknownProcess } from "../../calls/index.ts";
import { processName, processNames } from "../../contract/catalogue.ts";
import { DomainError, type FieldViolation } from "../../contract/errors.ts";
import { invisibleCharacter, isBlank } from "../../contract/invisible-characters.ts";
import type { TargetRules } from "../../contract/target-rules.ts";
import { BREAKER_BOUNDS } from "../../contract/webhooks/circuit-breaker.ts";
import {
  boundsOf,
  choicesOf,
  type NumberName,
  numberSetting,
  SETTING_NAMES,
  SETTINGS,
  type SettingFields,
  type SettingName,
  type Settings,
  textError,
} from "../../contract/webhooks/settings.ts";
import { isKnownProcess } from "../../event-types/index.ts";
import type { BreakerSettings } from "../breakers.ts";

/** The maximum length of a webhook's name, in characters. */
const MAX_NAME_CHARACTERS = 100;
/** The size of a secret of one's own, in bytes (Standard Webhooks). */
const OWN_SECRET_BYTES = { min: 24, max: 64 };
/** The maximum size of a test event's payload, in bytes: as of other events. */
const MAX_TEST_PAYLOAD_BYTES = 262_144;

/**
 * @param customer the customer of the webhook; null for the operator's
 * @throws DomainError INVALID_ARGUMENT if no webhook of the customer can have the URL
 */
export function checkedAddress(
  targets: TargetRules,
  url: string,
  customer: string | null,
): { url: string; targetUrl: string; customer: string | null } {
  // URL parsing drops some of these, but the URL is stored as given.
  if (/\p{Cc}/u.test(url) || !url.isWellFormed()) {
    throw invalidField(
      "url",
      "contains control characters, which are not allowed; remove them or percent-encode them",
    );
  }
  return { url, targetUrl: targets.normalise(url, customer), customer };
}

/** Null for a blank name. @throws DomainError INVALID_ARGUMENT */
export function checkedName(name: string): string | null {
  assertText("name", name, MAX_NAME_CHARACTERS);
  const invisible = invisibleCharacter(name);
  if (invisible) {
    throw invalidField("name", `must not hold ${invisible}, which cannot be seen`);
  }
  return isBlank(name) ? null : name.trim();
}

/**
 * A secret of one's own as its bytes, as Standard Webhooks allows it.
 *
 * @throws DomainError INVALID_ARGUMENT, which repeats nothing of it
 */
export function checkedSecret(secret: string): Buffer {
  const refuse = (description: string) => invalidField("secret", description);
  const { min, max } = OWN_SECRET_BYTES;
  const [, base64] = /^whsec_([\w+/-]+={0,2})$/.exec(secret) ?? [];
  const bytes = Buffer.from(base64 ?? "", "base64");
  // Node ignores what is not base64, and reads base64url too.
  if (base64 === undefined || bytes.toString("base64").replace(/=+$/, "") !== base64.replace(/=+$/, "")) {
    throw refuse(`must be whsec_ and the base64 of ${min} to ${max} bytes, as Standard Webhooks has it`);
  }
  if (bytes.length >= min && bytes.length <= max) return bytes;
  throw refuse(
    `is whsec_ and the base64 of ${bytes.length} bytes; it must be that of ${min} to ${max} bytes`,
  );
}

/** The body of a test event. @throws DomainError INVALID_ARGUMENT unless it is a JSON object of an allowed size */
export function checkedPayload(payload: string): string {
  const refuse = (description: string) => invalidField("payload", description);
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

/**
 * The settings of a request that it sets. Null for an empty text and for 0.
 *
 * @param deliveryTimeoutMs DELIVERY_TIMEOUT, in milliseconds
 * @throws DomainError INVALID_ARGUMENT
 */
export function checkedSettings(
  { name, ...others }: { [Name in SettingName]?: SettingFields[Name] | undefined },
  deliveryTimeoutMs: number,
): Partial<Settings> {
  const given = SETTING_NAMES.flatMap((each) => {
    const value = each === "name" ? undefined : others[each];
    return value === undefined ? [] : [[each, checkedSetting(each, value, deliveryTimeoutMs)]];
  });
  return { ...(name === undefined ? {} : { name: checkedName(name) }), ...Object.fromEntries(given) };
}

function checkedSetting(name: SettingName, value: number | string, deliveryTimeoutMs: number) {
  if (value === 0 || value === "") return null;
  const choices = choicesOf(name);
  if (typeof value === "number" && !choices)
    return checkedNumber(name as NumberName, value, deliveryTimeoutMs);
  const chosen = choices && (choices[Number(value) - 1] ?? null);
  const numbers = choices?.map((choice, index) => `${index + 1} (${choice.toUpperCase()})`).join(", ");
  const description =
    chosen === null
      ? `${value} is not allowed; send any of: ${numbers}, or 0 for none`
      : textError(name, String(value));
  if (description !== undefined) throw invalidField(SETTINGS[name].column, description);
  return chosen ?? value;
}

/** @param none what a request sends for no value. @throws DomainError INVALID_ARGUMENT */
export function checkedNumber(
  name: NumberName,
  value: number,
  deliveryTimeoutMs: number,
  none = "0 for none",
): number {
  const { min, max } = boundsOf(name, deliveryTimeoutMs);
  if (value >= min && value <= max) return value;
  const { column, unit } = numberSetting(name);
  throw invalidField(column, `must be ${min} to ${max} ${unit}, or ${none}`);
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
export async function checkedProcesses(
  field: string,
  processes: readonly number[],
): Promise<readonly number[]> {
  for (const process of processes)
    if (!(await isKnownProcess(process))) throw invalidField(field, unknownProcess(process));
  return [...new Set(processes)];
}

/**
 * The key determines which event types may be subscribed to (contract, section 5, rule 4).
 *
 * @throws DomainError PERMISSION_DENIED
 */
export function assertMaySubscribe(caller: ApiKeyRow, process: number): void {
  if (caller.allowedProcesses.length === 0 || caller.allowedProcesses.includes(process)) return;
  throw new DomainError(
    "PROCESS_NOT_ALLOWED",
    `the API key may not subscribe to ${processName(process)}, only to ${processNames(caller.allowedProcesses)}`,
  );
}
