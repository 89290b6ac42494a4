import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import { raw_json } from "../../../gen/webhook/v1/options_pb.ts";
import { isMarked } from "./field-types.ts";

/** Serializes a value of one type, in its generated representation, as JSON. */
export type WriteValue = (value: unknown) => string;

/** The serializer of a scalar field, its items or its map's values. */
export function scalarWriter(field: DescField & { scalar: ScalarType }): WriteValue {
  switch (field.scalar) {
    case ScalarType.STRING:
      return isRawJson(field) ? (text) => (text === "" ? "null" : (text as string)) : JSON.stringify;
    case ScalarType.BYTES:
      return (value) => `"${base64Encode(value as Uint8Array)}"`;
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return (value) => {
        if (!Number.isFinite(value))
          throw new RangeError(
            `${field.name} is ${value}, which JSON cannot represent; send a finite number`,
          );
        // String() loses the sign of minus zero.
        return Object.is(value, -0) ? "-0" : String(value);
      };
    default:
      // Booleans and integers. 64-bit integers are bigint and keep every digit.
      return String;
  }
}

/** Whether a text field contains JSON that is embedded unchanged. */
export function isRawJson(field: DescField): boolean {
  return isMarked(field, raw_json);
}
