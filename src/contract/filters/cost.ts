import { FilterError } from "./filter-error.ts";
import { compileCost } from "./patterns.ts";
import type { Expr } from "./type-check.ts";

/** The maximum cost of an evaluation, in steps of about two microseconds: some ten milliseconds. */
const MAX_COST = 5_000;
/** The length of a text that a function reads in the time of a step, in characters. */
const TEXT_PER_STEP = 5_000;
/** The same for a regular expression: the size of its program multiplied by the length of the text. */
const PATTERN_TEXT_PER_STEP = 20;
/** The maximum cost to compile all regular expressions of a filter, in instructions. */
const MAX_PATTERN_SIZE = 2_000;
/** The maximum number of loops within each other. */
const MAX_DEPTH = 2;

/** The size of a filter, which determines its cost together with the event. */
export interface FilterSize {
  /** The number of nodes of its syntax tree. */
  nodes: number;
  /** The number of loops within each other. */
  depth: number;
  /** The number of additions, of which each may join two lists or texts. */
  additions: number;
  /** The number of items of the longest list that the filter contains. */
  items: number;
  /** The cost to compile all its regular expressions, in instructions. */
  patterns: number;
  /** Its regular expressions. */
  regexes: string[];
}

/** The size of an event, which determines the cost of a filter for it. */
export interface EventSize {
  /** The number of items of its longest list. */
  longestList: number;
  /** The length of its payload, which is longer than any text in it. */
  characters: number;
}

/**
 * Measures a filter.
 *
 * @throws FilterError for loops in loops in loops, and for regular expressions that are not constants or too large
 */
export function sizeOf(expr: Expr): FilterSize {
  const size: FilterSize = { nodes: 0, depth: 0, additions: 0, items: 0, patterns: 0, regexes: [] };
  measure(expr, 0, size);
  if (size.patterns > MAX_PATTERN_SIZE) {
    const [large, allowed] = [size.patterns, MAX_PATTERN_SIZE].map((each) => each.toLocaleString("en-US"));
    throw new FilterError(
      `the regular expressions are too large: ${large} instructions, of ${allowed} allowed; repeat less, such as by {8} instead of {1000}, and use fewer classes such as \\pL`,
    );
  }
  return size;
}

function measure({ exprKind }: Expr, depth: number, size: FilterSize): void {
  size.nodes += 1;
  const measureAll = (exprs: readonly (Expr | undefined)[], at = depth) => {
    for (const each of exprs) if (each) measure(each, at, size);
  };
  switch (exprKind.case) {
    case "selectExpr":
      measureAll([exprKind.value.operand]);
      break;
    case "listExpr":
      size.items = Math.max(size.items, exprKind.value.elements.length);
      measureAll(exprKind.value.elements);
      break;
    case "callExpr": {
      const { function: name, target, args } = exprKind.value;
      if (name === "_+_") size.additions += 1;
      if (name === "matches") {
        const pattern = patternOf(args.at(-1));
        size.patterns += compileCost(pattern);
        size.regexes.push(pattern);
      }
      measureAll([target, ...args]);
      break;
    }
    case "comprehensionExpr": {
      const { iterRange, accuInit, loopCondition, loopStep, result } = exprKind.value;
      size.depth = Math.max(size.depth, depth + 1);
      if (size.depth > MAX_DEPTH)
        throw new FilterError(
          `the filter has loops (exists, all, map, filter) in loops more than ${MAX_DEPTH} deep; use fewer`,
        );
      measureAll([iterRange, accuInit, result]);
      measureAll([loopCondition, loopStep], depth + 1);
    }
  }
}

function patternOf(expr: Expr | undefined): string {
  const constant = expr?.exprKind.case === "constExpr" ? expr.exprKind.value.constantKind : undefined;
  if (constant?.case === "stringValue") return constant.value;
  throw new FilterError("matches takes a regular expression in quotes, not one that depends on the event");
}

/** Counts the steps of an evaluation. */
export class Steps {
  #steps = 0;

  /**
   * Starts an evaluation: counts an upper bound of its steps without those of regular expressions, whose texts are much
   * shorter than the event.
   *
   * @throws FilterError if it may be expensive
   */
  start(filter: FilterSize, { longestList, characters }: EventSize): void {
    const list = Math.max(1, filter.items, longestList) * (filter.additions + 1);
    const text = characters * (filter.additions + 1);
    const repeats = list ** filter.depth;
    this.#steps = 0;
    this.#count(repeats * filter.nodes * (1 + text / TEXT_PER_STEP));
  }

  /**
   * Counts the steps of a regular expression that reads a text.
   *
   * @param size the size of its program
   * @throws FilterError if the evaluation becomes expensive
   */
  read(size: number, characters: number): void {
    this.#count((size * characters) / PATTERN_TEXT_PER_STEP);
  }

  #count(steps: number): void {
    this.#steps += steps;
    if (this.#steps <= MAX_COST) return;
    throw new FilterError(
      `the filter is too expensive for this event: ${Math.ceil(this.#steps).toLocaleString("en-US")} steps, of ${MAX_COST.toLocaleString("en-US")} allowed; use fewer loops and shorter regular expressions`,
    );
  }
}
