import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** A small change to one line of the code. */
export interface Mutant {
  id: number;
  file: string;
  /** The line as it is, without the indent. */
  line: string;
  /** Which of the lines with the same text in the file, starting at 0. */
  nth: number;
  /** Where in this text the change begins. */
  column: number;
  from: string;
  to: string;
}

/** The committed list. */
export const LIST = fileURLToPath(new URL("list.json", import.meta.url));

export function readMutants(): Mutant[] {
  return (JSON.parse(readFileSync(LIST, "utf8")) as { mutants: Mutant[] }).mutants;
}

/** The line of a place in a source, as a mutant names it. */
export function lineOf(source: string, place: number): Pick<Mutant, "nth" | "column"> & { text: string } {
  const start = source.lastIndexOf("\n", place - 1) + 1;
  const [line = ""] = source.slice(start).split("\n", 1);
  const text = line.trim();
  const earlier = source.slice(0, start).split("\n");
  const nth = earlier.filter((one) => one.trim() === text).length;
  return { text, column: place - start - line.indexOf(text), nth };
}

/**
 * The source with the change.
 *
 * @throws Error if the source no longer has the line
 */
export function mutated(source: string, { id, file, line, nth, column, from, to }: Mutant): string {
  const lines = source.split("\n");
  const index = lines.map((each, n) => (each.trim() === line ? n : -1)).filter((n) => n >= 0)[nth];
  if (index === undefined) throw new Error(`mutant ${id}: ${file} has no such line: ${line}`);
  const whole = lines[index] as string;
  const start = whole.indexOf(line) + column;
  if (!whole.startsWith(from, start)) throw new Error(`mutant ${id}: ${file} has no "${from}" in: ${line}`);
  lines[index] = `${whole.slice(0, start)}${to}${whole.slice(start + from.length)}`;
  return lines.join("\n");
}
