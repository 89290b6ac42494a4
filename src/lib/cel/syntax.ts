import { parse } from "@bufbuild/cel";
import type { Parsed } from "./expr.ts";
import { ExpressionError } from "./expression-error.ts";
import { expandMacros, type OptionalMarks } from "./macros.ts";

/** Texts, names, comments and the signs that matter here. */
const TOKENS =
  /[bB]?[rR][bB]?(?:""".*?"""|'''.*?'''|"[^"\n]*"|'[^'\n]*')|[bB]?(?:"""(?:\\.|[^\\])*?"""|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\/\/[^\n]*|\w+|[[\](){},.?]/gs;

/** How to write something, for errors: a field, optional fields and elements, and the member of an enum. */
export const EXAMPLES = { field: "a.b", optional: "a.?b and a[?0]", enumValue: "Kind.MEMBER" };

/**
 * Parses an expression.
 *
 * @throws ExpressionError that says where it is not valid
 */
export function parseExpression(text: string, examples = EXAMPLES): Parsed {
  try {
    const { plain, marks } = withoutMarks(text);
    const parsed = parse(plain);
    return { ...parsed, expr: expandMacros(parsed, marks) };
  } catch (error) {
    if (error instanceof ExpressionError) throw error;
    throw new ExpressionError(syntaxError(text, error as Error, examples));
  }
}

/**
 * Replaces the question marks of CEL's optional syntax, `a.?b`, `a[?b]`, `[?a]` and `{?a: b}`, by blanks: the library's parser does
 * not know them.
 */
function withoutMarks(text: string): { plain: string; marks: OptionalMarks } {
  const marks: OptionalMarks = { selects: new Set(), elements: new Map() };
  const open: { offset: number; element: number }[] = [];
  let plain = text;
  let before = { sign: "", offset: 0 };
  for (const { 0: sign, index: offset } of text.matchAll(TOKENS)) {
    if (sign.startsWith("//")) continue;
    const inner = open.at(-1);
    if ("[({".includes(sign)) open.push({ offset, element: 0 });
    else if ("])}".includes(sign)) open.pop();
    else if (sign === "," && inner) inner.element += 1;
    else if (sign === "?" && ".[{,".includes(before.sign) && before.sign !== "") {
      plain = `${plain.slice(0, offset)} ${plain.slice(offset + 1)}`;
      if (before.sign === ".") marks.selects.add(before.offset);
      else if (inner) marks.elements.getOrInsertComputed(inner.offset, () => new Set()).add(inner.element);
    }
    before = { sign, offset };
  }
  return { plain, marks };
}

/** The parser's messages name what else it could have read, but not what is missing. */
function syntaxError(expression: string, error: Error, { optional }: typeof EXAMPLES): string {
  const { location } = error as { location?: { start: { offset: number } } };
  if (!location) return `is not a valid expression: ${error.message}`;
  const { offset } = location.start;
  const rest = expression.slice(offset, offset + 20);
  const where =
    rest === "" ? "it ends too early" : `it cannot be read from character ${offset + 1} on: ${rest}`;
  const hint = /\?\.|\?\[/.test(expression) ? `; optional fields and elements are written ${optional}` : "";
  return `is not a valid expression: ${where}${hint}`;
}
