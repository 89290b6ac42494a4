import { type DescField, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import type { GenExtension } from "@bufbuild/protobuf/codegenv2";
import type { FieldOptions } from "@bufbuild/protobuf/wkt";

/** The type of times. */
export const TIMESTAMP = "google.protobuf.Timestamp";
/** The type of periods. */
export const DURATION = "google.protobuf.Duration";
/** The type of packed messages. */
export const ANY = "google.protobuf.Any";

/** Whether an option that is true or false is true for a field. */
export function isMarked(field: DescField, option: GenExtension<FieldOptions, boolean>): boolean {
  return hasOption(field, option) && getOption(field, option);
}

/** The types of integers that JavaScript's numbers cannot hold. */
export const INTEGERS_64: ReadonlySet<ScalarType | undefined> = new Set([
  ScalarType.INT64,
  ScalarType.UINT64,
  ScalarType.SINT64,
  ScalarType.FIXED64,
  ScalarType.SFIXED64,
]);

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
