import type { DescField } from "@bufbuild/protobuf";

/** The type of times. */
export const TIMESTAMP = "google.protobuf.Timestamp";
/** The type of packed messages. */
export const ANY = "google.protobuf.Any";

/**
 * Checks that payloads and REST answers can have a field. Of protobuf's own messages, which have JSON formats of their
 * own, they can have times only.
 *
 * @throws Error that names the field, its type and what to use instead
 */
export function assertJsonField({ message, name, parent }: DescField): void {
  if (!message?.typeName.startsWith("google.protobuf.") || message.typeName === TIMESTAMP) return;
  throw new Error(
    `${parent.typeName}.${name} is a ${message.typeName}; of google.protobuf only Timestamp is allowed. ` +
      "Use a message, a map or a scalar instead, with `optional` if it can be null",
  );
}
