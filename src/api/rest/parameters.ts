import type { DescField, DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { required } from "../../../gen/webhook/v1/options_pb.ts";
import { invalidField, invalidFields } from "../../calls/errors/index.ts";
import type { FieldViolation } from "../../contract/errors.ts";
import { isMarked } from "../../contract/json/field-types.ts";
import { fieldsFor } from "../../contract/json/writer.ts";
import { convertParameter, expectation } from "./parameter-values.ts";

/** The locations of parameters. */
export interface ParameterSources {
  query: Record<string, unknown>;
  body: unknown;
  /** Whether the body is a form. As in a query, an array then means a repeated name. */
  bodyIsForm: boolean;
}

interface Source {
  values: Record<string, unknown>;
  arraysAreRepeats: boolean;
}

/**
 * Reads a request message from query and body, each field by its JSON name.
 *
 * @throws DomainError INVALID_ARGUMENT that names each parameter that is missing, empty, of the wrong type, or sent
 *   with different values
 */
export function readParameters<Desc extends DescMessage>(
  desc: Desc,
  { query, body, bodyIsForm }: ParameterSources,
): MessageShape<Desc> {
  const sources: Source[] = [
    { values: query, arraysAreRepeats: true },
    { values: bodyObject(body), arraysAreRepeats: bodyIsForm },
  ];
  const violations: FieldViolation[] = [];
  const values: Record<string, unknown> = {};
  let isMissing = false;
  for (const field of restFields(desc)) {
    const given = sources.flatMap((source) => valuesOf(source, field.jsonName));
    const result = readField(field, given, sources);
    if (given.length === 0 && "problem" in result) isMissing = true;
    if ("problem" in result) violations.push({ field: field.jsonName, description: result.problem });
    else if (result.value !== undefined) values[field.localName] = result.value;
  }
  if (isMissing && bodyIsForm && looksLikeJson(body))
    violations.unshift({ field: "the body", description: JSON_AS_FORM });
  if (violations.length > 0) throw invalidFields(violations);
  return create(desc, values as MessageInitShape<Desc>);
}

/** The fields of a request message that REST has as parameters. */
export function restFields(desc: DescMessage): DescField[] {
  return fieldsFor(desc, "rest");
}

/** The error for JSON in a form, which curl sends for `-d '{…}'` by default. */
const JSON_AS_FORM =
  "looks like JSON, but its Content-Type is application/x-www-form-urlencoded: send it with Content-Type: application/json";

/** Whether a form has a name that starts like a JSON object. */
function looksLikeJson(form: unknown): boolean {
  return Object.keys(bodyObject(form)).some((name) => /^\s*\{\s*(?:"|\})/.test(name));
}

function bodyObject(body: unknown): Record<string, unknown> {
  if (body === undefined || body === null) return {};
  if (typeof body !== "object" || Array.isArray(body)) {
    throw invalidField("the body", 'must be a JSON object with the parameters, such as {"name": "value"}');
  }
  return body as Record<string, unknown>;
}

function valuesOf({ values, arraysAreRepeats }: Source, name: string): unknown[] {
  if (!Object.hasOwn(values, name) || values[name] === null) return [];
  const value = values[name];
  return arraysAreRepeats && Array.isArray(value) ? value : [value];
}

function readField(
  field: DescField,
  given: unknown[],
  sources: Source[],
): { value: unknown } | { problem: string } {
  if (given.length === 0) {
    if (!isRequired(field)) return { value: undefined };
    const near = misspelt(field.jsonName, sources);
    return {
      problem: near
        ? `is required; it was sent as ${near}, but its name is ${field.jsonName}`
        : `is required; ${expectation(field)}`,
    };
  }
  const converted = given.map((value) => convertParameter(field, value));
  const failed = converted.find((each) => "problem" in each);
  if (failed) return failed;
  const distinct = new Set(converted.map((each) => (each as { value: unknown }).value));
  if (distinct.size > 1) return { problem: "was sent more than once with different values; send it once" };
  const [value] = distinct;
  if (isRequired(field) && (value === 0 || value === 0n))
    return { problem: `must not be 0; ${expectation(field)}` };
  return { value };
}

function isRequired(field: DescField): boolean {
  return isMarked(field, required);
}

/** A parameter whose name differs only in case, underscores, brackets or spaces, the most likely mistake. */
function misspelt(name: string, sources: Source[]): string | undefined {
  const plain = (text: string) => text.replaceAll(/[_\-[\]\s]/g, "").toLowerCase();
  return sources
    .flatMap((source) => Object.keys(source.values))
    .find((each) => each !== name && plain(each) === plain(name));
}
