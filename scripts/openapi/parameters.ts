import type { DescField, DescMessage, JsonValue } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { required } from "../../gen/webhook/v1/options_pb.ts";
import type { RestBinding } from "../../src/api/rest/bindings.ts";
import { restFields } from "../../src/api/rest/parameters.ts";
import { commentOf } from "../../src/contract/comments.ts";
import { described } from "../../src/contract/event-types/schema.ts";
import { type JsonSchema, SCALAR_SCHEMAS } from "../../src/contract/event-types/schema-scalars.ts";
import { isMarked } from "../../src/contract/json/field-types.ts";
import { enumMemberName } from "../../src/contract/json/names.ts";

/** A location of a parameter. */
export type Place = "query" | "json" | "form";

/** The part of an operation that describes its parameters. */
export interface DescribedParameters {
  parameters?: JsonSchema[];
  requestBody?: JsonSchema;
  /** Further locations in which the same parameters are accepted. */
  "x-parameters-also-in"?: Place[];
}

/** Added to operations with parameters, because OpenAPI cannot express alternative locations. */
const ANY_PLACE =
  "Parameters can be sent in the query, in a JSON body or in a form body. The same parameter with two values is an error.";

/** Describes a request message in its preferred location: the body if the binding has one, otherwise the query. */
export function describeParameters({ httpMethod, method }: RestBinding): DescribedParameters {
  const fields = restFields(method.input);
  if (fields.length === 0) return {};
  if (httpMethod === "GET" || httpMethod === "DELETE") {
    const parameters = fields.map((field) => ({
      name: field.jsonName,
      in: "query",
      required: isRequired(field),
      ...described(commentOf(field)),
      schema: parameterSchema(field),
      example: exampleOf(field),
    }));
    // Bodies of GET requests are ignored.
    return httpMethod === "GET" ? { parameters } : { parameters, "x-parameters-also-in": ["json", "form"] };
  }
  const media = { schema: bodySchema(method.input), example: exampleRequest(method.input) };
  return {
    requestBody: {
      required: fields.some(isRequired),
      content: { "application/json": media, "application/x-www-form-urlencoded": media },
    },
    "x-parameters-also-in": ["query"],
  };
}

/** A note about parameters for the operation's description; undefined without parameters. */
export function aboutParameters({ httpMethod, method }: RestBinding): string | undefined {
  return restFields(method.input).length === 0 || httpMethod === "GET" ? undefined : ANY_PLACE;
}

function bodySchema(desc: DescMessage): JsonSchema {
  return {
    type: "object",
    required: restFields(desc)
      .filter(isRequired)
      .map((field) => field.jsonName),
    properties: Object.fromEntries(
      restFields(desc).map((field) => [
        field.jsonName,
        {
          ...parameterSchema(field),
          ...described(commentOf(field)),
        },
      ]),
    ),
  };
}

/** The schema of a parameter as `convertParameter` accepts it, with enums by number. */
function parameterSchema(field: DescField): JsonSchema {
  if (field.fieldKind === "enum") {
    const values = field.enum.values.filter((value) => value.number !== 0 || !isRequired(field));
    return {
      type: "integer",
      format: "int32",
      enum: values.map((value) => value.number),
      "x-enum-varnames": values.map((value) => enumMemberName(field.enum, value.number)),
      "x-enum-descriptions": values.map((value) => commentOf(value) ?? ""),
    };
  }
  if (field.fieldKind !== "scalar") return {};
  if (field.scalar === ScalarType.BOOL) return { type: "boolean" };
  if (field.scalar !== ScalarType.STRING) return SCALAR_SCHEMAS[field.scalar];
  return { type: "string", ...(isRequired(field) ? { minLength: 1 } : {}) };
}

function isRequired(field: DescField): boolean {
  return isMarked(field, required);
}

function exampleRequest(desc: DescMessage): JsonValue {
  return Object.fromEntries(restFields(desc).map((field) => [field.jsonName, exampleOf(field)]));
}

function exampleOf(field: DescField): JsonValue {
  if (field.fieldKind === "enum") return field.enum.values.find((value) => value.number !== 0)?.number ?? 0;
  if (field.fieldKind !== "scalar") return null;
  if (field.scalar === ScalarType.BOOL) return true;
  if (field.scalar !== ScalarType.STRING) return 1;
  return field.name.endsWith("url") ? "https://example.com/hooks" : field.name;
}
