/** Thrown for a filter that is not valid, or that cannot be evaluated for an event. The message is for users. */
export class FilterError extends Error {
  override name = "FilterError";
}
