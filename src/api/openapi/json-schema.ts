/** A JSON Schema (2020-12), as OpenAPI 3.1 takes it. */
export interface JsonSchema {
  [keyword: string]: unknown;
}

/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** `{ description }` where there is a comment, else nothing to spread. */
export function described(comment: string | undefined): { description?: string } {
  return comment ? { description: comment } : {};
}

/** The first sentence of a comment, without its full stop. */
export function firstSentence(comment: string): string {
  return (/^.*?(?=\.(?:\s|$))/s.exec(comment)?.[0] ?? comment).replaceAll(/\s+/g, " ");
}
