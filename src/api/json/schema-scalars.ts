import { ScalarType } from "@bufbuild/protobuf";
import type { ExactJson } from "./parse.ts";

/** A JSON Schema, or a part of one. */
export type JsonSchema = { [keyword: string]: ExactJson };

function integer(format: string, minimum: bigint, maximum: bigint): JsonSchema {
  return { type: "integer", format, minimum, maximum };
}

const INT32 = integer("int32", -(2n ** 31n), 2n ** 31n - 1n);
const UINT32 = integer("uint32", 0n, 2n ** 32n - 1n);
const INT64 = integer("int64", -(2n ** 63n), 2n ** 63n - 1n);
const UINT64 = integer("uint64", 0n, 2n ** 64n - 1n);

/** What a scalar looks like in JSON. */
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

/** What types of google.protobuf look like whose JSON is not an object with their fields. */
export const WELL_KNOWN_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  "google.protobuf.Timestamp": {
    type: "string",
    // Not the format date-time, which asks for a zone.
    pattern: "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$",
  },
  "google.protobuf.Duration": { type: "string", pattern: "^-?[0-9]+(\\.[0-9]+)?s$" },
  "google.protobuf.FieldMask": { type: "string" },
  "google.protobuf.Struct": { type: "object" },
  "google.protobuf.ListValue": { type: "array" },
  "google.protobuf.Value": {},
};
