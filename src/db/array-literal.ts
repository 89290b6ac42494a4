/**
 * A PostgreSQL array of values that need no quotes: numbers, booleans, UUIDs. For statements that run thousands of
 * times a second: pg's own way looks at every character of every element.
 */
export function plainArray(values: readonly (string | number | bigint | boolean | null)[]): string {
  return `{${values.map((value) => value ?? "NULL").join()}}`;
}

/** A PostgreSQL array of texts, whatever they contain. */
export function textArray(values: readonly (string | null)[]): string {
  return `{${values.map((value) => (value === null ? "NULL" : quoted(value))).join()}}`;
}

function quoted(text: string): string {
  return `"${/["\\]/.test(text) ? text.replaceAll(/["\\]/g, "\\$&") : text}"`;
}
