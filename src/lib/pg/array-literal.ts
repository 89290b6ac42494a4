/**
 * A PostgreSQL array literal of values that need no quotes: numbers, booleans, UUIDs. For statements that run
 * thousands of times per second: pg's own serialization inspects every character.
 */
export function plainArray(values: readonly (string | number | bigint | boolean | null)[]): string {
  return `{${values.map((value) => value ?? "NULL").join()}}`;
}

/** A PostgreSQL array literal of arbitrary texts. */
export function textArray(values: readonly (string | null)[]): string {
  return `{${values.map((value) => (value === null ? "NULL" : quoted(value))).join()}}`;
}

/** Control characters and lone surrogates. JSON escapes them with letters, such as `\n`, which PostgreSQL would read as the letter. */
const ESCAPED_OTHERWISE = /[\p{Cc}\p{Cs}]/u;

/** Quotes a text. `JSON.stringify` escapes most texts as PostgreSQL expects, and is several times as fast as `replaceAll`. */
function quoted(text: string): string {
  return ESCAPED_OTHERWISE.test(text) ? `"${text.replaceAll(/["\\]/g, "\\$&")}"` : JSON.stringify(text);
}
