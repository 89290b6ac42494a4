import { type Expr, ExprMaker, type Node, type Parsed } from "./expr.ts";
import { ExpressionError } from "./expression-error.ts";

/** The question marks of an expression's optional syntax. */
export interface OptionalMarks {
  /** The offsets of the dots of `a.?b`. */
  selects: Set<number>;
  /** The numbers of the optional elements, by the offset of their opening bracket. */
  elements: Map<number, Set<number>>;
}

/** The list or map of a loop with two variables. */
const RANGE = "@range";

/** Replaces what the library's parser does not know: optional syntax, and the macros of CEL's extensions. */
export function expandMacros(parsed: Parsed, marks: OptionalMarks): Expr {
  return new MacroExpander(new ExprMaker(parsed), marks).expand(parsed.expr);
}

class MacroExpander {
  readonly #make: ExprMaker;
  readonly #marks: OptionalMarks;

  constructor(make: ExprMaker, marks: OptionalMarks) {
    this.#make = make;
    this.#marks = marks;
  }

  expand(expr: Expr): Expr {
    const { exprKind } = expr;
    switch (exprKind.case) {
      case "selectExpr":
        if (exprKind.value.operand) exprKind.value.operand = this.expand(exprKind.value.operand);
        return this.#select(expr, exprKind.value);
      case "callExpr":
        exprKind.value.args = exprKind.value.args.map((arg) => this.expand(arg));
        if (exprKind.value.target) exprKind.value.target = this.expand(exprKind.value.target);
        return this.#call(expr, exprKind.value);
      case "listExpr":
        exprKind.value.elements = exprKind.value.elements.map((element) => this.expand(element));
        return this.#list(expr, exprKind.value);
      case "structExpr":
        for (const entry of exprKind.value.entries) {
          if (entry.keyKind.case === "mapKey") entry.keyKind.value = this.expand(entry.keyKind.value);
          if (entry.value) entry.value = this.expand(entry.value);
        }
        return this.#map(expr, exprKind.value);
      case "comprehensionExpr": {
        const { value } = exprKind;
        for (const part of ["iterRange", "accuInit", "loopCondition", "loopStep", "result"] as const) {
          const inner = value[part];
          if (inner) value[part] = this.expand(inner);
        }
        return expr;
      }
      default:
        return expr;
    }
  }

  #isOptional(expr: Expr, element: number): boolean {
    return this.#marks.elements.get(this.#make.offsetOf(expr) ?? -1)?.has(element) ?? false;
  }

  #select(expr: Expr, { operand, field, testOnly }: Node<"selectExpr">): Expr {
    if (!operand || !this.#marks.selects.has(this.#make.offsetOf(expr) ?? -1)) return expr;
    const optional = this.#make.call(expr, "@optionalField", [operand, this.#make.constant(expr, field)]);
    return testOnly ? this.#make.call(expr, "hasValue", [], optional) : optional;
  }

  #list(expr: Expr, { elements }: Node<"listExpr">): Expr {
    if (!elements.some((_, n) => this.#isOptional(expr, n))) return expr;
    return elements
      .map((element, n) =>
        this.#isOptional(expr, n)
          ? this.#make.call(element, "@elements", [element])
          : this.#make.list(element, [element]),
      )
      .reduce((before, list) => this.#make.call(expr, "_+_", [before, list]));
  }

  #map(expr: Expr, { entries, messageName }: Node<"structExpr">): Expr {
    if (messageName !== "" || !entries.some((_, n) => this.#isOptional(expr, n))) return expr;
    const maps = entries.map(({ keyKind, value }, n) => {
      if (keyKind.case !== "mapKey" || !value)
        throw new ExpressionError("a map has an entry without key or value");
      return this.#isOptional(expr, n)
        ? this.#make.call(expr, "@entries", [keyKind.value, value])
        : this.#make.map(expr, keyKind.value, value);
    });
    return this.#make.call(expr, "@merge", [this.#make.list(expr, maps)]);
  }

  #call(expr: Expr, call: Node<"callExpr">): Expr {
    const { function: name, target, args } = call;
    const [first, second, third, fourth] = args;
    if (name === "_[_]" && this.#isOptional(expr, 0)) return this.#make.call(expr, "@optionalElement", args);
    if (!target || !first) return expr;
    const namespace = target.exprKind.case === "identExpr" ? target.exprKind.value.name : undefined;
    if (namespace === "math" && (name === "greatest" || name === "least")) {
      const numbers = second ? this.#make.list(expr, args) : first;
      return this.#make.call(expr, `math.@${name}`, [numbers]);
    }
    const variable = nameOf(first);
    if (variable === undefined || !second) return expr;
    if (namespace === "cel" && name === "bind" && third && !fourth)
      return this.#make.bind(expr, variable, second, third);
    if (!third) return this.#withVariable(expr, name, target, variable, second);
    const other = nameOf(second);
    return other === undefined
      ? expr
      : (this.#withVariables(expr, name, target, [variable, other], third, fourth) ?? expr);
  }

  /** Macros such as `optional.optMap(x, x + 1)`. */
  #withVariable(expr: Expr, name: string, target: Expr, variable: string, body: Expr): Expr {
    const make = this.#make;
    const range = () => make.name(expr, RANGE);
    switch (name) {
      case "optMap":
      case "optFlatMap": {
        const inner = make.bind(expr, variable, make.call(expr, "value", [], range()), body);
        const some = name === "optMap" ? make.call(expr, "optional.of", [inner]) : inner;
        const has = make.call(expr, "hasValue", [], range());
        return make.bind(
          expr,
          RANGE,
          target,
          make.call(expr, "_?_:_", [has, some, make.call(expr, "optional.none", [])]),
        );
      }
      case "sortBy": {
        const initial = make.list(expr, []);
        const step = (keys: Expr) => make.call(expr, "_+_", [keys, make.list(expr, [body])]);
        const keys = make.loop(expr, range(), variable, { initial, step });
        return make.bind(expr, RANGE, target, make.call(expr, "@sortBy", [range(), keys]));
      }
      default:
        return expr;
    }
  }

  /** Loops with two variables: the index and the element of a list, or the key and the value of a map. */
  #withVariables(
    expr: Expr,
    name: string,
    target: Expr,
    [key, value]: [string, string],
    first: Expr,
    second: Expr | undefined,
  ): Expr | undefined {
    const make = this.#make;
    const test = second && first;
    const body = second ?? first;
    const call = (operator: string, ...args: Expr[]) => make.call(expr, operator, args);
    const bound = (inner: Expr) =>
      make.bind(expr, value, call("_[_]", make.name(expr, RANGE), make.name(expr, key)), inner);
    const loop = (parts: Parameters<ExprMaker["loop"]>[3]) =>
      make.bind(expr, RANGE, target, make.loop(expr, call("@keys", make.name(expr, RANGE)), key, parts));
    const collect = (element: Expr) => {
      const step = (list: Expr) => {
        const more = call("_+_", list, make.list(expr, [element]));
        return bound(test ? call("_?_:_", test, more, list) : more);
      };
      return loop({ initial: make.list(expr, []), step });
    };
    switch (name) {
      case "all":
      case "exists": {
        if (test) return undefined;
        const isAll = name === "all";
        return loop({
          initial: make.constant(expr, isAll),
          step: (result) => call(isAll ? "_&&_" : "_||_", result, bound(body)),
          goesOn: (result) => call("@not_strictly_false", isAll ? result : call("!_", result)),
        });
      }
      case "existsOne":
      case "exists_one":
        if (test) return undefined;
        return loop({
          initial: make.constant(expr, 0n),
          step: (count) => call("_?_:_", bound(body), call("_+_", count, make.constant(expr, 1n)), count),
          end: (count) => call("_==_", count, make.constant(expr, 1n)),
        });
      case "transformList":
        return collect(body);
      case "transformMap":
        return call("@merge", collect(make.map(expr, make.name(expr, key), body)));
      case "transformMapEntry":
        return call("@merge", collect(body));
      default:
        return undefined;
    }
  }
}

function nameOf({ exprKind }: Expr): string | undefined {
  return exprKind.case === "identExpr" ? exprKind.value.name : undefined;
}
