import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";

const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, allErrors: true });
// They say how wide an integer is, which its bounds hold.
for (const format of ["int32", "uint32", "int64", "uint64"]) ajv.addFormat(format, true);

/**
 * A validator of JSON values, strict about the schema itself: keywords that it does not know are errors.
 *
 * @param schema JSON text of a schema of 2020-12
 */
export function schemaValidator(schema: string): ValidateFunction {
  return ajv.compile(JSON.parse(schema));
}
