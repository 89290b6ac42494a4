import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { eventType, processChoices } from "../contract/catalogue.ts";
import { DomainError } from "../contract/errors.ts";
import { invalidField, invalidFields } from "./errors/errors.ts";
import { findFieldViolations } from "./required-fields.ts";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Whether a text is a UUID in the canonical form. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/**
 * @param path the path of the message in the request, ending in a dot unless it is empty
 * @throws DomainError INVALID_ARGUMENT that names all missing required fields and times out of range
 */
export function assertFields<Desc extends DescMessage>(
  desc: Desc,
  message: MessageShape<Desc>,
  path = "",
): void {
  const violations = findFieldViolations(desc, message, path);
  if (violations.length > 0) throw invalidFields(violations);
}

/**
 * Checks a user-chosen text, such as a name.
 *
 * @throws DomainError INVALID_ARGUMENT if it is too long or PostgreSQL cannot store it
 */
export function assertText(field: string, text: string, maxCharacters: number): void {
  // Counting characters costs more than their UTF-16 units, of which there are no fewer.
  if (text.length > maxCharacters && [...text].length > maxCharacters) {
    throw invalidField(field, `must have at most ${maxCharacters} characters`);
  }
  if (text.includes("\0") || !text.isWellFormed()) {
    throw invalidField(field, "must be valid Unicode text without null characters");
  }
}

/** The error for an unknown event type number. */
export function unknownProcess(number: number): string {
  return `${number} is not an event type; allowed: ${processChoices()}`;
}

/** Whether the number is an event type that this process knows. */
export function isProcess(number: number): boolean {
  return eventType(number) !== undefined;
}

/** @throws DomainError INVALID_ARGUMENT if it is not a UUID */
export function optionalUuid<Id extends string | undefined>(field: string, id: Id): Id {
  if (id !== undefined && !isUuid(id)) {
    const thing = field.replace(/_id$/, "");
    throw invalidField(field, `must be the id of ${article(thing)} ${thing}, a UUID`);
  }
  return id;
}

function article(noun: string): string {
  return /^[aeiou]/.test(noun) ? "an" : "a";
}

/** The error for a webhook that does not exist or is outside the caller's scope. */
export function noWebhook(id: bigint): DomainError {
  return new DomainError("WEBHOOK_NOT_FOUND", `there is no webhook ${id}; list the webhooks to find its Id`);
}
