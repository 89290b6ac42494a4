/** Evaluates filters in a thread of its own. */
export {
  type FilterInput,
  type FilterResult,
  type FilterRunner,
  type FilterText,
  runFilter,
} from "./filter-runner.ts";
export { FilterThreads } from "./filter-threads.ts";
