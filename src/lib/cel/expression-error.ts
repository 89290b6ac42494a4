/** Thrown for an expression that is not valid, or that cannot be evaluated. The message is for the author of the expression. */
export class ExpressionError extends Error {
  override name = "ExpressionError";
}
