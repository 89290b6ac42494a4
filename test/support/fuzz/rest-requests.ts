import fc from "fast-check";
import type { JsonSchema } from "../../../src/contract/event-types/schema-scalars.ts";
import { described } from "../described-answers.ts";
import type { FuzzRequest } from "./fuzz-request.ts";
import { seldom } from "./generators.ts";
import { keyHeader, otherContentType, otherMethod, seldomHeaders } from "./headers.ts";

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
  place: Place;
  parameters: Parameter[];
}
type Place = "query" | "json" | "form";

const operations = Object.entries(described.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]): Operation => {
    const { parameters = [], requestBody } = operation as unknown as {
      parameters?: Parameter[];
      requestBody?: { content: Record<string, { schema: JsonSchema; example: Record<string, unknown> }> };
    };
    const media = requestBody?.content["application/json"];
    const properties = Object.entries((media?.schema.properties ?? {}) as Record<string, JsonSchema>);
    const inBody = properties.map(([name, schema]) => ({ name, schema, example: media?.example[name] }));
    const place = media ? "json" : "query";
    return { method: method.toUpperCase(), path, place, parameters: [...parameters, ...inBody] };
  }),
);

/** A value as JSON; numbers keep every digit. */
const jsonOf = (value: unknown) => (typeof value === "bigint" ? String(value) : JSON.stringify(value));

/** Values that the schema allows. */
function rightValue({ schema, example }: Parameter): fc.Arbitrary<string> {
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum).map(jsonOf);
  if (schema.type === "integer") return fc.bigInt(1n, 2n ** 63n - 1n).map(jsonOf);
  // Few, so that requests meet what others made.
  return fc.nat(20).map((n) => jsonOf(`${example}/${n}`));
}

const edges = [0n, -1n, 2n ** 32n + 1n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, -(2n ** 63n), 10n ** 30n];
const anyValue: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(...edges, "", " ", "null", "1e3", "0x1", "OrderDispatched", "\0", "١").map(jsonOf),
  fc.string({ unit: "binary" }).map(jsonOf),
  fc.webUrl({ validSchemes: ["https", "http"] }).map(jsonOf),
  fc.json({ maxDepth: 2 }),
  fc.bigInt().map(jsonOf),
);

type Placed = [place: Place, name: string, json: string];
const anyPlace = fc.constantFrom<Place>("query", "json", "form");

/** Each parameter of an operation, now and then elsewhere, twice, not at all or with another name or value. */
function nearlyRight({ parameters, place }: Operation): fc.Arbitrary<Placed[]> {
  const each = parameters.map((parameter) => {
    const { name } = parameter;
    const names = seldom(fc.constant(name), fc.constantFrom(name.toUpperCase(), `${name}[]`));
    const values = seldom(rightValue(parameter), anyValue, 2);
    const one = fc.tuple(seldom(fc.constant(place), anyPlace), names, values);
    return fc.array<Placed>(one, { maxLength: 2 });
  });
  const unknown = fc.array<Placed>(fc.tuple(anyPlace, fc.string(), anyValue), { maxLength: 3 });
  return fc.tuple(...each, seldom(fc.constant<Placed[]>([]), unknown)).map((lists) => lists.flat());
}

const right = ({ parameters, place }: Operation): fc.Arbitrary<Placed[]> =>
  fc.tuple(...parameters.map((each) => rightValue(each).map((json): Placed => [place, each.name, json])));

/** A request with its parameters where they go. A body is a form only when nothing in it is JSON. */
function requestOf({ method, path }: Operation, placed: readonly Placed[]): FuzzRequest {
  const encoded = (wanted: Place) =>
    placed
      .filter(([where]) => where === wanted)
      .map(([, name, json]) => [name, json.startsWith('"') ? (JSON.parse(json) as string) : json])
      .map((pair) => pair.map((text) => encodeURIComponent(text.toWellFormed())).join("="))
      .join("&");
  const members = placed
    .filter(([where]) => where === "json")
    .map(([, name, json]) => `${JSON.stringify(name)}:${json}`);
  const body = members.length > 0 ? `{${members.join()}}` : encoded("form");
  const type = members.length > 0 ? "application/json" : "application/x-www-form-urlencoded";
  const query = encoded("query");
  return {
    protocol: "REST",
    over: "HTTP/1.1",
    method,
    path: query === "" ? path : `${path}?${query}`,
    headers: body === "" ? {} : { "content-type": type },
    body: body === "" ? undefined : Buffer.from(body),
  };
}

const otherPath = (path: string) =>
  fc.oneof(
    fc.constantFrom("/", "//", "/%zz", "/%E0", ";a=b", "?", "?&&", "?a=%", "/..").map((end) => path + end),
    fc.string({ unit: "binary" }).map((text) => `/api/${encodeURIComponent(text.toWellFormed())}`),
    fc.constantFrom(path.toUpperCase(), path.replaceAll("/", "//"), path.slice(0, -1)),
  );
const otherBody = fc.oneof(
  fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  fc
    .oneof(
      fc.json(),
      fc.constantFrom("{", "[]", "null", '{"a":1,"a":2}', "[".repeat(5_000), " ".repeat(70_000)),
    )
    .map((text) => Buffer.from(text)),
);

/** Requests as the description says they should be, every parameter given. */
export const rightRest = (key: string): fc.Arbitrary<FuzzRequest> =>
  fc
    .constantFrom(...operations)
    .chain((operation) => right(operation).map((placed) => requestOf(operation, placed)))
    .map((request) => ({ ...request, headers: { ...request.headers, "x-service-key": key } }));

/**
 * Requests of REST, most of them nearly right: now and then with another method, path, body, content type, key or header.
 *
 * @param keys secrets of keys; the first may do everything
 */
export function restRequests(
  keys: readonly string[],
  versions: FuzzRequest["over"][],
): fc.Arbitrary<FuzzRequest> {
  const nearly = fc.constantFrom(...operations).chain((operation) =>
    fc
      .record({
        placed: nearlyRight(operation),
        method: seldom(fc.constant(operation.method), otherMethod),
        path: seldom(fc.constant(undefined), otherPath(operation.path)),
        body: seldom(fc.constant(undefined), otherBody),
        type: seldom(fc.constant(undefined), otherContentType),
        key: keyHeader(keys),
        more: seldomHeaders,
        over: fc.constantFrom(...versions),
      })
      .map(({ placed, method, path, body, type, key, more, over }): FuzzRequest => {
        const request = requestOf(operation, placed);
        const typed = type === undefined ? {} : { "content-type": type };
        const headers = { ...request.headers, ...typed, ...key, ...more };
        return { ...request, method, over, headers, path: path ?? request.path, body: body ?? request.body };
      }),
  );
  return seldom(nearly, rightRest(keys[0] as string), 4);
}
