import { type DescField, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import { raw_json } from "../../../gen/webhook/v1/options_pb.ts";

/** Writes a value of one type, in the shape that generated code has it, as JSON text. */
export type WriteValue = (value: unknown) => string;

/**
 * The writer of a scalar field, of its items or of its map's values.
 *
 * @param name for messages
 */
export function scalarWriter(field: DescField & { scalar: ScalarType }, name: string): WriteValue {
  switch (field.scalar) {
    case ScalarType.STRING:
      return isRawJson(field) ? (text) => (text === "" ? "null" : (text as string)) : JSON.stringify;
    case ScalarType.BYTES:
      return (value) => `"${base64Encode(value as Uint8Array)}"`;
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return (value) => {
        if (!Number.isFinite(value))
          throw new RangeError(`${name} is ${value}, which JSON cannot say; send a finite number`);
        // Minus zero is a number of its own, which String forgets.
        return Object.is(value, -0) ? "-0" : String(value);
      };
    default:
      // Booleans and integers; 64-bit ones are bigint, which keeps every digit.
      return String;
  }
}

/** Whether a text is JSON that is embedded as it is. */
export function isRawJson(field: DescField): boolean {
  return hasOption(field, raw_json) && getOption(field, raw_json);
}
