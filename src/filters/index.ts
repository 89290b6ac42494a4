/** Evaluates filters in a separate thread. */
export {
  type FilterInput,
  type FilterResult,
  type FilterRunner,
  type FilterText,
  runFilter,
} from "./filter-runner.ts";
export { FilterThreads } from "./filter-threads.ts";
