import { type CelEnv, type CelType, celEnv, plan } from "@bufbuild/cel";
import type { Registry } from "@bufbuild/protobuf";
import { RE2JS } from "@bufbuild/re2";
import { functions } from "./functions/all.ts";
import { startEvaluation } from "./functions/values.ts";
import { type EXAMPLES, parseExpression } from "./syntax.ts";
import { typeOf } from "./type-check.ts";

/** What the names in an expression mean. */
export interface ExpressionScope {
  /** The package of names without one. */
  namespace: string;
  /** The messages and enums. */
  registry: Registry;
  /** The types of the variables. */
  variables: { [name: string]: CelType };
  /** What errors show. Defaults to neutral names. */
  examples?: typeof EXAMPLES;
}

/** A compiled expression. */
export interface Expression {
  type: CelType;
  /** Evaluates it with values of the variables. Its errors are values. */
  evaluate: ReturnType<typeof plan>;
}

/** Compiles an expression. @throws ExpressionError if it is not valid */
export function compileExpression(
  { namespace, registry, variables, examples }: ExpressionScope,
  text: string,
): Expression {
  const compiled = new Map<string, RE2JS>();
  const env: CelEnv = celEnv({
    namespace,
    registry,
    variables,
    funcs: functions,
    re2: { compile: (pattern) => compiled.getOrInsertComputed(pattern, () => RE2JS.compile(pattern)) },
  });
  const parsed = parseExpression(text, examples);
  const type = typeOf(env, parsed, examples);
  const evaluate = plan(env, parsed);
  return {
    type,
    evaluate(variables) {
      startEvaluation();
      return evaluate(variables);
    },
  };
}
