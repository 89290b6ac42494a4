import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { rest_omitted } from "../../../gen/webhook/v1/options_pb.ts";
import { enumMemberName, propertyName } from "../json/names.ts";
import { isRawJson } from "../json/scalars.ts";
import type { JsonAudience } from "../json/writer.ts";
import type { Json } from "./json-schema.ts";

/** An example of a message as the JSON writer would write it, the same at each call. */
export function exampleData(desc: DescMessage, audience: JsonAudience): Json {
  if (desc.typeName === "google.protobuf.Timestamp") return "2026-11-21T09:30:00";
  return Object.fromEntries(
    desc.fields
      .filter(
        (field) =>
          audience === "payload" || !hasOption(field, rest_omitted) || !getOption(field, rest_omitted),
      )
      .map((field) => [propertyName(field), exampleOf(field, audience)]),
  );
}

function exampleOf(field: DescField, audience: JsonAudience): Json {
  // What may be unset is, so that a message that holds itself comes to an end.
  if (field.proto.proto3Optional || field.oneof) return null;
  switch (field.fieldKind) {
    case "message":
      return exampleData(field.message, audience);
    case "enum":
      return (
        enumMemberName(field.enum, field.enum.values.find((value) => value.number !== 0)?.number ?? 0) ?? null
      );
    case "scalar":
      return isRawJson(field) ? {} : exampleScalar(field.scalar, field.name);
    case "list":
      return field.listKind === "message" ? [exampleData(field.message, audience)] : [];
    case "map":
      return {};
  }
}

function exampleScalar(scalar: ScalarType, name: string): Json {
  switch (scalar) {
    case ScalarType.STRING:
      return name.endsWith("url") ? "https://example.com/hooks" : name;
    case ScalarType.BYTES:
      return "";
    case ScalarType.BOOL:
      return true;
    default:
      return 1;
  }
}
