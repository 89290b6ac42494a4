import { Ajv2020, type AnySchemaObject, type ValidateFunction } from "ajv/dist/2020.js";
import { expect } from "vitest";
import document from "../../gen/openapi.json" with { type: "json" };
import type { OpenApiDocument } from "../../scripts/openapi/document.ts";
import { JSON_CONTENT_TYPE } from "../../src/api/rest/envelope.ts";
import { eventTypes } from "../../src/contract/catalogue.ts";
import type { JsonSchema } from "../../src/contract/event-types/schema-scalars.ts";
import { RATE_LIMIT_FIELDS } from "../../src/keys/gate/request-limits.ts";

/** The DELIVERY_TIMEOUT of tests' APIs, in milliseconds: not the default. */
export const DESCRIBED_TIMEOUT_MS = 7_500;

/** The description that every answer is held against; `openapi.test.ts` sees to it that it is the one served. */
export const described = JSON.parse(
  JSON.stringify(document).replaceAll("15 seconds", "7.5 seconds"),
) as OpenApiDocument;

/** The warning that the description has as an example of a kind of failure. */
export function exampleOf(response: string, name: string): string | undefined {
  // biome-ignore lint/suspicious/noExplicitAny: a document, of which only this is looked at
  const { examples } = (described.components.responses as any)[response].content["application/json"];
  return examples[name]?.value.Warnings[0];
}

/** Knows how to check JSON against parts of the description. */
export const ajv = new Ajv2020({ allErrors: true, strict: true, allowUnionTypes: true });
for (const format of ["int32", "uint32", "int64", "uint64"]) ajv.addFormat(format, true);
ajv.addVocabulary(["x-enum-descriptions", "x-enum-varnames"]);
// The served description has the event types that are registered at the time, which these checks do not wait for.
ajv.addKeyword({
  keyword: "x-event-type",
  validate: (_schema: unknown, value: unknown) => eventTypes().some(({ name }) => name === value),
});
// The document's own members, which are no keywords of JSON Schema.
ajv.addVocabulary(Object.keys(described));
ajv.addSchema(closed(described) as AnySchemaObject, "openapi");

/** The description lets later versions add properties; these tests must see when this one does. */
function closed(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(closed);
  if (typeof part !== "object" || part === null) return part;
  const copy = Object.fromEntries(Object.entries(part).map(([name, value]) => [name, closed(value)]));
  if (copy.type === "string" && (part as JsonSchema).enum?.toString().startsWith("OrderDispatched,"))
    return { type: "string", "x-event-type": true };
  const isObject = copy.type === "object" && copy.properties !== undefined;
  return isObject ? { additionalProperties: false, ...copy } : copy;
}

/** The check for the schema at a place in the document. */
export function validatorAt(...path: string[]): ValidateFunction {
  const pointer = path.map((each) => encodeURIComponent(each.replaceAll("~", "~0").replaceAll("/", "~1")));
  const validate = ajv.getSchema(`openapi#/${pointer.join("/")}`);
  if (!validate) throw new Error(`the description has no schema at ${path.join(" ")}`);
  return validate;
}

/** What is described at a place in the document. */
function partAt(path: readonly string[]): unknown {
  return path.reduce(
    (part: unknown, name) => (part as Record<string, unknown> | undefined)?.[name],
    described,
  );
}

/** The place that a place refers to, or itself. */
function referred(path: string[]): string[] {
  const { $ref } = (partAt(path) ?? {}) as { $ref?: string };
  return $ref === undefined ? path : $ref.slice("#/".length).split("/");
}

/** One answer, and what it answers. */
export interface GivenAnswer {
  method: string;
  /** As it was asked for, with or without a query. */
  path: string;
  status: number;
  header: (name: string) => string | null | undefined;
  /** The body. */
  text: string;
}

/**
 * Fails the test unless the answer is as the OpenAPI description says: a status that the operation can have, its
 * content type, its schema. What was no operation must be a failure in the envelope.
 */
export function expectDescribed({ method, path, status, header, text }: GivenAnswer): void {
  const about = `${method} ${path}`.slice(0, 200);
  const plain = decoded((path.split("?", 1)[0] as string).replace(/(?<=.)\/$/, ""));
  const verb = method === "HEAD" ? "get" : method.toLowerCase();
  const known = described.paths[plain]?.[verb] !== undefined;
  const place = known
    ? referred(["paths", plain, verb, "responses", String(status)])
    : ["components", "responses", "UnknownPath"];
  expect(partAt(place), `${about} was answered ${status}, which its description does not have`).toBeDefined();
  if (!known) expect([400, 404], `${about} is no operation`).toContain(status);
  expect(header("Content-Type"), about).toBe(JSON_CONTENT_TYPE);
  expectHeaders(place, header, about);
  if (method === "HEAD") {
    expect(text, about).toBe("");
    return;
  }
  const validate = validatorAt(...place, "content", "application/json", "schema");
  validate(JSON.parse(text));
  expect(validate.errors ?? [], `the answer to ${about}, ${text.slice(0, 500)}`).toEqual([]);
}

/** Headers that an answer has only where its description has them. */
const TOLD = ["Retry-After", ...RATE_LIMIT_FIELDS];

function expectHeaders(place: string[], header: GivenAnswer["header"], about: string): void {
  for (const name of TOLD) {
    const value = header(name) ?? undefined;
    const at = referred([...place, "headers", name]);
    const told = partAt(at) as { required?: boolean; schema: JsonSchema } | undefined;
    if (value === undefined) {
      expect(told?.required ?? false, `${about} lacks ${name}`).toBe(false);
      continue;
    }
    expect(told, `${about} has ${name}, which is not described`).toBeDefined();
    const validate = validatorAt(...at, "schema");
    validate(told?.schema.type === "integer" ? Number(value) : value);
    expect(validate.errors ?? [], `${about}: ${name}: ${value}`).toEqual([]);
  }
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
