import type { parse } from "@bufbuild/cel";

/** A parsed expression with the positions of its nodes. */
export type Parsed = ReturnType<typeof parse>;
/** A node of an expression's syntax tree. */
export type Expr = Parsed["expr"];
/** What a node of a kind has. */
export type Node<Case extends Expr["exprKind"]["case"]> =
  Extract<Expr["exprKind"], { case: Case }> extends {
    value: infer Value;
  }
    ? Value
    : never;

/** The result of a loop so far. */
const RESULT = "@result";

/** How a loop computes its result from that of the items before, which `result` is. */
export interface Loop {
  /** The result without items. */
  initial: Expr;
  step: (result: Expr) => Expr;
  /** Whether the next item can change the result. Defaults to true. */
  goesOn?: (result: Expr) => Expr;
  /** Defaults to the result after the last item. */
  end?: (result: Expr) => Expr;
}

/** Makes nodes, which get the position of a node of the text. */
export class ExprMaker {
  readonly #positions: { [id: string]: number };
  #id: number;

  constructor({ sourceInfo }: Parsed) {
    this.#positions = sourceInfo?.positions ?? {};
    this.#id = Object.keys(this.#positions).length;
  }

  /** The offset of a node in the text. */
  offsetOf({ id }: Pick<Expr, "id">): number | undefined {
    return this.#positions[String(id)];
  }

  call(at: Expr, name: string, args: Expr[], target?: Expr): Expr {
    const value = {
      $typeName: "cel.expr.Expr.Call",
      function: name,
      args,
      ...(target && { target }),
    } as const;
    return this.#node(at, { case: "callExpr", value });
  }

  name(at: Expr, name: string): Expr {
    return this.#node(at, { case: "identExpr", value: { $typeName: "cel.expr.Expr.Ident", name } });
  }

  constant(at: Expr, given: string | bigint | boolean): Expr {
    const constantKind =
      typeof given === "string"
        ? ({ case: "stringValue", value: given } as const)
        : typeof given === "bigint"
          ? ({ case: "int64Value", value: given } as const)
          : ({ case: "boolValue", value: given } as const);
    return this.#node(at, { case: "constExpr", value: { $typeName: "cel.expr.Constant", constantKind } });
  }

  list(at: Expr, elements: Expr[]): Expr {
    const value = { $typeName: "cel.expr.Expr.CreateList", elements, optionalIndices: [] } as const;
    return this.#node(at, { case: "listExpr", value: { ...value, optionalIndices: [] } });
  }

  /** A map of one entry. */
  map(at: Expr, key: Expr, value: Expr): Expr {
    const { id } = this.#node(at, { case: undefined });
    const entry = {
      $typeName: "cel.expr.Expr.CreateStruct.Entry",
      id,
      keyKind: { case: "mapKey", value: key },
      value,
      optionalEntry: false,
    } as const;
    const struct = { $typeName: "cel.expr.Expr.CreateStruct", entries: [entry], messageName: "" } as const;
    return this.#node(at, { case: "structExpr", value: { ...struct, entries: [entry] } });
  }

  loop(at: Expr, range: Expr, variable: string, { initial, step, goesOn, end }: Loop): Expr {
    const result = () => this.name(at, RESULT);
    const loopCondition = goesOn?.(result()) ?? this.constant(at, true);
    return this.#comprehension(at, {
      iterVar: variable,
      iterRange: range,
      accuVar: RESULT,
      accuInit: initial,
      loopCondition,
      loopStep: step(result()),
      result: end?.(result()) ?? result(),
    });
  }

  /** `body` with a variable. */
  bind(at: Expr, variable: string, value: Expr, body: Expr): Expr {
    return this.#comprehension(at, {
      iterVar: "@unused",
      iterRange: this.list(at, []),
      accuVar: variable,
      accuInit: value,
      loopCondition: this.constant(at, false),
      loopStep: this.name(at, variable),
      result: body,
    });
  }

  #comprehension(at: Expr, value: Omit<Node<"comprehensionExpr">, "$typeName" | "iterVar2">): Expr {
    return this.#node(at, {
      case: "comprehensionExpr",
      value: { ...value, $typeName: "cel.expr.Expr.Comprehension", iterVar2: "" },
    });
  }

  #node(at: Expr, exprKind: Expr["exprKind"]): Expr {
    this.#id += 1;
    this.#positions[this.#id] = this.offsetOf(at) ?? 0;
    return { $typeName: "cel.expr.Expr", id: BigInt(this.#id), exprKind };
  }
}
