import { LRUCache } from "lru-cache";
import { compileFilter, type Filter, type FilterEvent, filterEvent } from "../contract/filters/filter.ts";
import { ExpressionError } from "../lib/cel/index.ts";
import type { FilterInput, FilterResult, FilterText } from "./filter-runner.ts";

/** The maximum number of compiled filters. */
const MAX_COMPILED = 1_000;

/** Compiles and evaluates filters in the current thread. Compiled filters are cached. */
export class Evaluator {
  readonly #compiled = new LRUCache<string, Filter | ExpressionError>({ max: MAX_COMPILED });
  readonly #events = new WeakMap<FilterInput, FilterEvent>();

  /**
   * Evaluates a filter for an event, or compiles it without one.
   *
   * @param onCompiled called between compilation and evaluation
   */
  evaluate(
    { process, expression }: FilterText,
    event: FilterInput | undefined,
    onCompiled = () => {},
  ): FilterResult {
    const filter = this.#compile(process, expression);
    if (filter instanceof ExpressionError) return { sent: true, problem: "invalid", error: filter.message };
    if (!event) return { sent: true };
    onCompiled();
    try {
      return { sent: filter.matches(this.#read(process, event)) };
    } catch (error) {
      const known = error instanceof ExpressionError;
      const unreadable = "the payload is not one of this version's event type";
      return { sent: true, problem: "failed", error: known ? error.message : unreadable };
    }
  }

  #compile(process: number, expression: string): Filter | ExpressionError {
    const key = `${process} ${expression}`;
    let filter = this.#compiled.get(key);
    if (!filter) {
      try {
        filter = compileFilter(process, expression);
      } catch (error) {
        filter =
          error instanceof ExpressionError ? error : new ExpressionError(`cannot be compiled: ${error}`);
      }
      this.#compiled.set(key, filter);
    }
    return filter;
  }

  #read(process: number, event: FilterInput): FilterEvent {
    return this.#events.getOrInsertComputed(event, () => filterEvent(process, event.payload, event.userId));
  }
}
