import { ScalarType } from "@bufbuild/protobuf";

/** A JSON Schema (2020-12) or a part of one. */
export interface JsonSchema {
  [keyword: string]: unknown;
}

const INT32 = { type: "integer", format: "int32", minimum: -(2 ** 31), maximum: 2 ** 31 - 1 };
const UINT32 = { type: "integer", format: "uint32", minimum: 0, maximum: 2 ** 32 - 1 };
// Without minimum and maximum, which most JSON parsers would round; the format implies them.
const INT64 = { type: "integer", format: "int64" };
const UINT64 = { type: "integer", format: "uint64", minimum: 0 };

/** The JSON Schema of each scalar type. */
export const SCALAR_SCHEMAS: Readonly<Record<ScalarType, JsonSchema>> = {
  [ScalarType.STRING]: { type: "string" },
  [ScalarType.BYTES]: { type: "string", contentEncoding: "base64" },
  [ScalarType.BOOL]: { type: "boolean" },
  [ScalarType.FLOAT]: { type: "number" },
  [ScalarType.DOUBLE]: { type: "number" },
  [ScalarType.INT32]: INT32,
  [ScalarType.SINT32]: INT32,
  [ScalarType.SFIXED32]: INT32,
  [ScalarType.UINT32]: UINT32,
  [ScalarType.FIXED32]: UINT32,
  [ScalarType.INT64]: INT64,
  [ScalarType.SINT64]: INT64,
  [ScalarType.SFIXED64]: INT64,
  [ScalarType.UINT64]: UINT64,
  [ScalarType.FIXED64]: UINT64,
};

/** The JSON Schema of times. */
export const TIME_SCHEMA: JsonSchema = {
  type: "string",
  // Not the format date-time, which requires a time zone.
  pattern: "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$",
  examples: ["2026-11-21T09:30:00"],
};
