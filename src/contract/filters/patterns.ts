import { RE2JS } from "@bufbuild/re2";
import { FilterError } from "./filter-error.ts";

/** The number of instructions for which a character of a regular expression stands at most. */
const INSTRUCTIONS_PER_CHARACTER = 2;
/** A counted repetition. */
const REPETITION = /\{(\d+)(?:,(\d*))?\}/g;
/** The cost to compile a class such as `\pL`, in instructions. */
const UNICODE_CLASS = 50;
/** The length of a range without case that costs as much to compile as an instruction, in characters. */
const RANGE_PER_INSTRUCTION = 20;
/** The maximum memory of compiled regular expressions, in bytes. */
const MAX_COMPILED_BYTES = 16_777_216;
/** The memory of an instruction, in bytes. */
const INSTRUCTION_BYTES = 150;
/** The memory of a state that a regular expression reached, without the instructions that the state consists of, in bytes. */
const STATE_BYTES = 1_300;

/**
 * The number of instructions of a regular expression's program, or more. A counted repetition repeats the instructions of a
 * character, of a class or of a group; for the latter, the whole expression is counted as repeated.
 */
export function programSize(pattern: string): number {
  let [single, groups] = [0, 1];
  for (const { index, 1: min, 2: max } of pattern.matchAll(REPETITION)) {
    const count = Math.max(1, Number(min), Number(max ?? 0));
    // What is before the end of a quotation, `\Q\E`, may be a group.
    if (/[)E]/.test(pattern.charAt(index - 1))) groups *= count;
    else single += count;
  }
  return (2 + pattern.length + single) * groups * INSTRUCTIONS_PER_CHARACTER;
}

/** The cost to compile a regular expression, in instructions. */
export function compileCost(pattern: string): number {
  let cost = programSize(pattern) + (pattern.match(/\\p/gi)?.length ?? 0) * UNICODE_CLASS;
  if (!/\(\?[a-z-]*i/i.test(pattern)) return cost;
  // The compiler looks up each character of a range.
  for (const [, hex, character] of pattern.matchAll(/-(?:\\x\{([\da-fA-F]+)\}|(\P{ASCII}))/gu)) {
    const last = hex === undefined ? (character?.codePointAt(0) ?? 0) : Number.parseInt(hex, 16);
    cost += Math.ceil(last / RANGE_PER_INSTRUCTION);
  }
  return cost;
}

interface Compiled {
  program: RE2JS;
  size: number;
}

/**
 * Compiled regular expressions, which filters can share so that their memory has one bound: all are evicted once they may
 * have reached MAX_COMPILED_BYTES.
 */
export class Patterns {
  readonly #compiled = new Map<string, Compiled>();
  #bytes = 0;

  /** @throws FilterError if a text is not a regular expression */
  assertValid(pattern: string): void {
    try {
      this.#compile(pattern);
    } catch (error) {
      const fault = (error as Error).message.replace(/^error parsing regexp: /, "");
      throw new FilterError(
        `the regular expression ${pattern} is not valid: ${fault}; use the syntax of RE2, which has no lookahead and no backreferences`,
      );
    }
  }

  /**
   * The regular expressions of a filter, for CEL.
   *
   * @param onTest called before each test with the size of the program and the length of the text; may throw
   */
  forFilter(onTest: (size: number, characters: number) => void) {
    return {
      compile: (pattern: string) => {
        const compiled = this.#compile(pattern);
        return {
          test: (text: string): boolean => {
            onTest(compiled.size, text.length);
            return this.#matches(compiled, text);
          },
        };
      },
    };
  }

  /** @throws Error if the text is not a regular expression */
  #compile(pattern: string): Compiled {
    if (this.#bytes > MAX_COMPILED_BYTES) {
      this.#compiled.clear();
      this.#bytes = 0;
    }
    let compiled = this.#compiled.get(pattern);
    if (!compiled) {
      compiled = { program: RE2JS.compile(pattern), size: programSize(pattern) };
      this.#compiled.set(pattern, compiled);
      this.#bytes += compileCost(pattern) * INSTRUCTION_BYTES;
    }
    return compiled;
  }

  #matches({ program, size }: Compiled, text: string): boolean {
    // Each character may lead to a new state.
    this.#bytes += text.length * (STATE_BYTES + size * Int32Array.BYTES_PER_ELEMENT);
    return program.test(text);
  }
}
