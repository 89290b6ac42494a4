import type { ExactJson } from "./parse.ts";

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
