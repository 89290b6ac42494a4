/** A JSON text as it is written: keys in their order and as often as they occur, numbers digit by digit. */
export type JsonTree =
  | { object: [key: string, value: JsonTree][] }
  | { array: JsonTree[] }
  | { string: string }
  | { number: string }
  | { literal: true | false | null };

/** As far as its end; JSON.parse is strict about what is within. */
const STRING = /"(?:[^"\\]|\\.)*"/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const LITERAL = /true|false|null/y;

/**
 * Parses JSON by its grammar (RFC 8259), without white space.
 *
 * @throws SyntaxError
 */
export function parseJsonTree(text: string): JsonTree {
  let at = 0;

  function take(pattern: RegExp): string | undefined {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    at += found?.length ?? 0;
    return found;
  }

  function takes(character: string): boolean {
    if (text[at] !== character) return false;
    at += 1;
    return true;
  }

  function expected(what: string): never {
    throw new SyntaxError(`${what} expected at ${at} of ${text}`);
  }

  function string(): string {
    return JSON.parse(take(STRING) ?? expected("a string")) as string;
  }

  function items<T>(end: string, item: () => T): T[] {
    const found: T[] = [];
    if (takes(end)) return found;
    do found.push(item());
    while (takes(","));
    if (!takes(end)) expected(end);
    return found;
  }

  function value(): JsonTree {
    if (takes("{")) {
      const object = items("}", (): [string, JsonTree] => {
        const key = string();
        if (!takes(":")) expected("a colon");
        return [key, value()];
      });
      return { object };
    }
    if (takes("[")) return { array: items("]", value) };
    if (text[at] === '"') return { string: string() };
    const number = take(NUMBER);
    if (number !== undefined) return { number };
    return { literal: JSON.parse(take(LITERAL) ?? expected("a value")) as boolean | null };
  }

  const tree = value();
  if (at !== text.length) expected("the end");
  return tree;
}
