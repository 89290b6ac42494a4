/** A JSON value with whole numbers beyond 2^53 as bigint. */
export type ExactJson =
  | null
  | boolean
  | number
  | bigint
  | string
  | ExactJson[]
  | { [name: string]: ExactJson };

type ExactReviver = (key: string, value: ExactJson, context: { source?: string }) => ExactJson;

/**
 * Parses JSON without rounding: a whole number that a double cannot hold becomes a bigint.
 *
 * @throws SyntaxError
 */
export function parseExactJson(text: string): ExactJson {
  const exact: ExactReviver = (_key, value, { source }) =>
    typeof value === "number" &&
    !Number.isSafeInteger(value) &&
    source !== undefined &&
    /^-?\d+$/.test(source)
      ? BigInt(source)
      : value;
  // The reviver's third argument is newer than TypeScript's description of it.
  return JSON.parse(text, exact as Parameters<typeof JSON.parse>[1]);
}

/** The first name that a JSON object gives more than once at its top level; `text` must be valid JSON. */
export function repeatedName(text: string): string | undefined {
  const seen = new Set<string>();
  let depth = 0;
  // Strings with the colon that makes them a name, and the brackets between them.
  for (const [token, string, colon] of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|[[{\]}]/g)) {
    if (string === undefined) depth += token === "{" || token === "[" ? 1 : -1;
    else if (colon !== undefined && depth === 1) {
      const name = JSON.parse(string) as string;
      if (seen.has(name)) return name;
      seen.add(name);
    }
  }
  return undefined;
}

/**
 * Writes a JSON value, every digit of its bigints included.
 *
 * @param indent spaces a level; 0 writes it on one line
 */
export function stringifyExactJson(value: ExactJson, indent = 0): string {
  return JSON.stringify(
    value,
    (_key, each: ExactJson) => (typeof each === "bigint" ? rawJson(String(each)) : each),
    indent,
  );
}

/** Newer than TypeScript's description of JSON. */
const { rawJSON: rawJson } = JSON as unknown as { rawJSON(text: string): object };
