/** Expressions in CEL: syntax, types, functions, limits. */
export { compileExpression, type ExpressionScope } from "./expression.ts";
export { ExpressionError } from "./expression-error.ts";
export { isAny, typeName } from "./result-types.ts";
