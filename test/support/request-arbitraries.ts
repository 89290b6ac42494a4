import fc from "fast-check";
import type { JsonSchema } from "../../src/api/json/schema-scalars.ts";
import { described } from "./described-answers.ts";

/** A request to be sent over HTTP as it is. */
export interface AnyRequest {
  method: string;
  /** With its query. */
  path: string;
  headers: Record<string, string>;
  body: string | Buffer | undefined;
}

/** A parameter as the description has it. */
interface Parameter {
  name: string;
  schema: JsonSchema;
  example: unknown;
}

interface Operation {
  method: string;
  path: string;
  /** Where the description says that parameters go. */
  place: "query" | "json";
  parameters: Parameter[];
}

const operations: Operation[] = Object.entries(described.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => {
    const { parameters = [], requestBody } = operation as unknown as {
      parameters?: Parameter[];
      requestBody?: { content: Record<string, { schema: JsonSchema; example: Record<string, unknown> }> };
    };
    const media = requestBody?.content["application/json"];
    const properties = Object.entries((media?.schema.properties ?? {}) as Record<string, JsonSchema>);
    const inBody = properties.map(([name, schema]) => ({ name, schema, example: media?.example[name] }));
    return {
      method: method.toUpperCase(),
      path,
      place: media ? "json" : "query",
      parameters: [...parameters, ...inBody],
    };
  }),
);

/** A value as JSON text and as a query has it; numbers keep every digit. */
interface Value {
  json: string;
  text: string;
}

function toValue(value: unknown): Value {
  if (typeof value === "string") return { json: JSON.stringify(value), text: value };
  const json = typeof value === "bigint" ? String(value) : JSON.stringify(value);
  return { json, text: json };
}

const edges = [
  0n,
  -1n,
  1n,
  2n ** 31n,
  2n ** 32n + 1n,
  2n ** 53n + 1n,
  2n ** 63n - 1n,
  2n ** 63n,
  -(2n ** 63n),
  10n ** 30n,
];

/** Values that the schema allows. */
function rightValue({ schema, example }: Parameter): fc.Arbitrary<Value> {
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum).map(toValue);
  if (schema.type === "integer") return fc.bigInt(1n, 2n ** 63n - 1n).map(toValue);
  if (schema.type === "boolean") return fc.boolean().map(toValue);
  // Few, so that requests meet what others made.
  return fc.nat(20).map((n) => toValue(`${example}/${n}`));
}

const anyValue: fc.Arbitrary<Value> = fc.oneof(
  fc.constantFrom(...edges).map(toValue),
  fc.string({ unit: "binary" }).map(toValue),
  fc.webUrl({ validSchemes: ["https", "http"] }).map(toValue),
  fc.jsonValue({ maxDepth: 2 }).map(toValue),
  fc.double().map((value) => ({ json: JSON.stringify(value), text: String(value) })),
  fc.constantFrom("", " ", "null", "1e3", "0x1", "OrderDispatched", "\0", "١", "https://[::1]/").map(toValue),
  fc.bigInt().map(toValue),
);

type Placed = [place: "query" | "json" | "form", name: string, value: Value];

const place = fc.constantFrom<Placed[0]>("query", "json", "form");
const often = <T>(usual: fc.Arbitrary<T>, other: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 9, arbitrary: usual }, { weight: 1, arbitrary: other });

function placedParameters(operation: Operation): fc.Arbitrary<Placed[]> {
  const each = operation.parameters.map((parameter) => {
    const value = fc.oneof(
      { weight: 2, arbitrary: rightValue(parameter) },
      { weight: 1, arbitrary: anyValue },
    );
    const name = often(
      fc.constant(parameter.name),
      fc.constantFrom(parameter.name.toUpperCase(), `${parameter.name}[]`),
    );
    return fc.array(fc.tuple(often(fc.constant(operation.place), place), name, value), { maxLength: 2 });
  });
  const unknown = often(
    fc.constant<Placed[]>([]),
    fc.array(fc.tuple(place, fc.string(), anyValue), { maxLength: 3 }),
  );
  return fc.tuple(...each, unknown).map((lists) => (lists as Placed[][]).flat());
}

/** Puts parameters where they go. A body is a form only when nothing in it is JSON. */
function requestOf({ method, path }: Operation, placed: readonly Placed[]): AnyRequest {
  const of = (wanted: Placed[0]) => placed.filter(([where]) => where === wanted);
  const encoded = (list: Placed[]) =>
    list
      .map(([, name, { text }]) =>
        [name, text].map((each) => encodeURIComponent(each.toWellFormed())).join("="),
      )
      .join("&");
  const query = encoded(of("query"));
  const json = of("json");
  const form = of("form");
  const isJson = json.length > 0;
  const body = isJson
    ? `{${json.map(([, name, value]) => `${JSON.stringify(name)}:${value.json}`).join(",")}}`
    : form.length > 0
      ? encoded(form)
      : undefined;
  const type = isJson ? "application/json" : "application/x-www-form-urlencoded";
  return {
    method,
    path: query === "" ? path : `${path}?${query}`,
    headers: body === undefined ? {} : { "content-type": type },
    body,
  };
}

const otherMethod = fc.constantFrom(
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "TRACE",
  "PROPFIND",
);
const otherPath = (path: string) =>
  fc.oneof(
    fc.constantFrom("/", "//", "/%zz", "/%E0", ";a=b", "?", "?&&", "?a=%", "/..").map((end) => path + end),
    fc.string({ unit: "binary" }).map((text) => `/api/${encodeURIComponent(text.toWellFormed())}`),
    fc.constantFrom(path.toUpperCase(), path.replaceAll("/", "//"), path.slice(0, -1)),
  );
const otherBody = fc.oneof(
  fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  fc.json(),
  fc.constantFrom("{", "[]", "null", '{"a":1,"a":2}', "[".repeat(5_000), " ".repeat(70_000)),
);
const otherType = fc.constantFrom(
  "application/json",
  "application/json; charset=utf-16",
  "text/plain",
  "multipart/form-data",
  "application/x-www-form-urlencoded",
  "a",
  "",
);

/**
 * Requests that are nearly right: an operation of the description with parameters of the right and of other types, in
 * any place and number; and now and then another method, path, body, content type or key.
 *
 * @param keys their header is one of them; undefined is left out
 */
export function nearlyRight(keys: readonly (string | undefined)[]): fc.Arbitrary<AnyRequest> {
  return fc.constantFrom(...operations).chain((operation) =>
    fc
      .record({
        placed: placedParameters(operation),
        key: often(fc.constant(keys[0]), fc.constantFrom(...keys)),
        method: often(fc.constant(operation.method), otherMethod),
        path: often(fc.constant(undefined), otherPath(operation.path)),
        body: often(fc.constant(undefined), otherBody),
        type: often(fc.constant(undefined), otherType),
      })
      .map(({ placed, key, method, path, body, type }) => {
        const request = requestOf(operation, placed);
        const headers = {
          ...request.headers,
          ...(type === undefined ? {} : { "content-type": type }),
          ...(key === undefined ? {} : { "x-service-key": key }),
        };
        return { method, path: path ?? request.path, headers, body: body ?? request.body };
      }),
  );
}

/** Requests as the description says they should be, every parameter given. */
export function right(key: string): fc.Arbitrary<AnyRequest> {
  return fc.constantFrom(...operations).chain((operation) =>
    fc
      .tuple(...operation.parameters.map((parameter) => rightValue(parameter)))
      .map((values) =>
        requestOf(
          operation,
          values.map((value, i) => [operation.place, operation.parameters[i]?.name ?? "", value]),
        ),
      )
      .map((request) => ({ ...request, headers: { ...request.headers, "x-service-key": key } })),
  );
}
