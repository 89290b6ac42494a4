/** A string, or one of the signs that JSON is laid out by, or whatever stands between them: a number, true, null. */
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g;
const INDENT = "  ";
/**
 * The maximum number of indented levels. The payload of a test event can be nested 16,000 deep, and indenting each level
 * would take 500 MB.
 */
const MAX_INDENTED = 40;

/**
 * Lays JSON out over lines. Its numbers stay as they are written: read and written anew, those beyond 2⁵³ would be
 * others.
 */
export function layOutJson(text: string): string {
  const tokens = text.match(TOKENS) ?? [];
  let depth = 0;
  let laidOut = "";
  const newLine = () => `\n${INDENT.repeat(Math.min(depth, MAX_INDENTED))}`;
  for (const [index, token] of tokens.entries()) {
    if (token === "{" || token === "[") {
      depth++;
      const empty = tokens[index + 1] === (token === "{" ? "}" : "]");
      laidOut += token + (empty ? "" : newLine());
    } else if (token === "}" || token === "]") {
      depth--;
      const empty = tokens[index - 1] === (token === "}" ? "{" : "[");
      laidOut += (empty ? "" : newLine()) + token;
    } else if (token === ",") laidOut += token + newLine();
    else laidOut += token === ":" ? ": " : token;
  }
  return laidOut;
}
