import { parseAst } from "rolldown/parseAst";

/** A node of the syntax tree. */
interface Node {
  type: string;
  start: number;
  end: number;
  [property: string]: unknown;
}

/** A line of a test that depends on how fast the machine is. */
export interface Finding {
  line: number;
  rule: "a clock in an assertion" | "a limit of a wait";
  text: string;
}

/**
 * What a value has of a clock: nothing, a moment (`new Date(Date.now() - HOUR)`, the data of many tests), or a measured
 * time, which differs from run to run.
 */
type Clock = 0 | 1 | 2;
const [NONE, MOMENT, MEASURED] = [0, 1, 2] as const;
/** The clocks of variables by their names, and those of fields as `.field`, whatever their objects. */
type Clocks = ReadonlyMap<string, Clock>;

const MEASURING = ["performance.now", "process.hrtime", "process.hrtime.bigint"];
/** Matchers that tell which of two moments is earlier. Others compare a moment with what was stored of it. */
const ORDERING = /^toBe(LessThan|GreaterThan|CloseTo|Within)/;
/** Functions whose result is of the same kind as what they are called with or on. */
const PASSING =
  /^(Number|BigInt|String|Math\.\w+|Promise\.\w+)$|\.(getTime|valueOf|toISOString|at|map|flatMap|slice|toSorted|sort|reduce|then|round|toFixed)$/;
/** Fields that tell nothing of the times in an object. */
const COUNTS = ["length", "size"];
/** Functions of Vitest, with the place of the limit that each takes after its function. */
const LIMITED: Record<string, number> = {
  test: 2,
  it: 2,
  beforeAll: 1,
  beforeEach: 1,
  afterAll: 1,
  afterEach: 1,
  onTestFinished: 1,
};
const LIMITS = ["timeout", "testTimeout", "hookTimeout"];

/**
 * Finds the assertions of a test file that use a clock, and the waits whose limit is not `PATIENCE_MS`.
 *
 * A clock's value is followed through variables, fields, arithmetic and functions of the file that return it, and not into
 * a function that is called with it: that makes data.
 *
 * @param lang of the source; "ts" unless given
 * @param isWaitHelper whether this is the file that calls `vi.waitFor` and `vi.waitUntil` for all others
 */
export function findClocks(source: string, lang: "ts" | "tsx" = "ts", isWaitHelper = false): Finding[] {
  const all = [...walk(parseAst(source, { lang }) as unknown as Node)];
  const findings = new Map<string, Finding>();
  const add = ({ start, end }: Node, rule: Finding["rule"]) => {
    const line = source.slice(0, start).split("\n").length;
    const [text = ""] = source.slice(start, end).split("\n");
    findings.set(`${line} ${rule}`, { line, rule, text });
  };
  const clocks = clocksOf(all);
  for (const node of all) {
    if (node.type === "Property" && LIMITS.includes(nameOf(node.key as Node))) {
      if (nameOf(node.value as Node) !== "PATIENCE_MS") add(node, "a limit of a wait");
    }
    if (node.type !== "CallExpression") continue;
    const name = nameOf(node.callee as Node);
    if (isAssertionWithClock(node, clocks)) add(node, "a clock in an assertion");
    const limit = (node.arguments as Node[])[
      LIMITED[name.split(".")[0] as string] ?? Number.POSITIVE_INFINITY
    ];
    if (limit && !isFunction(limit)) add(limit, "a limit of a wait");
    if (/^vi\.wait(For|Until)$/.test(name) && !isWaitHelper) add(node, "a limit of a wait");
  }
  return [...findings.values()].sort((one, other) => one.line - other.line);
}

/** Whether a call is `expect(…)` or a matcher of it, and one of its arguments has something of a clock. */
function isAssertionWithClock(call: Node, clocks: Clocks): boolean {
  const name = nameOf(call.callee as Node);
  if (!/^expect\b/.test(name)) return false;
  const args = call.arguments as Node[];
  const subjects = subjectsOf(call.callee as Node);
  const isReading = args.some((arg) => [...walk(arg)].some((node) => readingOf(node) !== NONE));
  const clock = clockOfAll([...args, ...subjects].flatMap(valuesOf), clocks);
  const isOrder = ORDERING.test(name.split(".").at(-1) as string);
  return isReading || clock === MEASURED || (clock === MOMENT && isOrder);
}

/** What `expect(…)` of a matcher was called with. */
function subjectsOf(node: Node): Node[] {
  if (node.type === "CallExpression") return node.arguments as Node[];
  return node.type === "MemberExpression" ? subjectsOf(node.object as Node) : [];
}

/** The values in an object that is written out, and any other expression as it is. */
function valuesOf(node: Node): Node[] {
  return node.type === "ObjectExpression" || node.type === "Property" || node.type === "ArrayExpression"
    ? children(node).flatMap(valuesOf)
    : [node];
}

/** The clocks of the names of a file: what is assigned is looked at until no further name is found. */
function clocksOf(all: readonly Node[]): Clocks {
  const clocks = new Map<string, Clock>();
  const assigned = all.flatMap(assignmentsOf);
  for (let found = -1; found !== sum(clocks); ) {
    found = sum(clocks);
    for (const [name, value] of assigned)
      clocks.set(name, Math.max(clocks.get(name) ?? NONE, clockOf(value, clocks)) as Clock);
  }
  return clocks;
}

const sum = (clocks: Clocks) => [...clocks.values()].reduce<number>((total, clock) => total + clock, 0);

/** What a node gives to names. */
function assignmentsOf(node: Node): [name: string, value: Node][] {
  const field = (key: unknown): string => `.${nameOf(key as Node)}`;
  const bind = (target: Node, value: Node): [string, Node][] => {
    switch (target.type) {
      case "Identifier":
        return [[target.name as string, value]];
      case "MemberExpression":
        return [[field(target.property), value]];
      case "AssignmentPattern":
        return bind(target.left as Node, value);
      case "ArrayPattern":
        return children(target).flatMap((element) => bind(element, value));
      default:
        return [];
    }
  };
  switch (node.type) {
    case "VariableDeclarator":
      return node.init ? bind(node.id as Node, node.init as Node) : [];
    case "AssignmentExpression":
      return bind(node.left as Node, node.right as Node);
    case "ForOfStatement":
      return children(node.left as Node).flatMap(({ id }) =>
        id ? bind(id as Node, node.right as Node) : [],
      );
    case "FunctionDeclaration":
      return bind(node.id as Node, node);
    case "ObjectExpression":
      return children(node).flatMap(({ key, value }) =>
        value ? [[field(key), value as Node] as [string, Node]] : [],
      );
    case "ObjectPattern":
      return children(node).flatMap(({ key, value }) =>
        // As if it were read from the object.
        value ? bind(value as Node, { ...node, type: "Identifier", name: field(key) }) : [],
      );
    case "CallExpression": {
      const callee = node.callee as Node;
      if (!/\.(push|unshift|set|add)$/.test(nameOf(callee))) return [];
      return (node.arguments as Node[]).flatMap((arg) => bind(callee.object as Node, arg));
    }
    default:
      return [];
  }
}

function clockOfAll(nodes: readonly (Node | null | undefined)[], clocks: Clocks): Clock {
  return Math.max(NONE, ...nodes.map((node) => (node ? clockOf(node, clocks) : NONE))) as Clock;
}

/** What an expression's value has of a clock. */
function clockOf(node: Node, clocks: Clocks): Clock {
  const of = (...nodes: unknown[]) => clockOfAll(nodes as Node[], clocks);
  const reading = readingOf(node);
  if (reading !== NONE) return reading;
  switch (node.type) {
    case "Identifier":
      return clocks.get(node.name as string) ?? NONE;
    case "MemberExpression": {
      const property = nameOf(node.property as Node);
      return COUNTS.includes(property) ? NONE : of(node.object) || (clocks.get(`.${property}`) ?? NONE);
    }
    case "BinaryExpression": {
      if (/=|^in/.test(node.operator as string) && !/^[<>]/.test(node.operator as string)) return NONE;
      const operands = [of(node.left), of(node.right)];
      const isShifted = /^[+-]$/.test(node.operator as string) && operands.includes(NONE);
      const most = Math.max(...operands) as Clock;
      return most === NONE || isShifted ? most : MEASURED;
    }
    case "CallExpression": {
      const callee = node.callee as Node;
      const name = nameOf(callee);
      if (readingOf(callee) !== NONE) return readingOf(callee);
      if (PASSING.test(name)) return of(callee.object, ...(node.arguments as Node[]));
      return callee.type === "MemberExpression"
        ? (clocks.get(`.${nameOf(callee.property as Node)}`) ?? NONE)
        : of(callee);
    }
    case "NewExpression":
      return nameOf(node.callee as Node) === "Date" ? of(...(node.arguments as Node[])) : NONE;
    case "ArrowFunctionExpression":
    case "FunctionExpression":
    case "FunctionDeclaration":
      return of(...returnedBy(node));
    case "ConditionalExpression":
      return of(node.consequent, node.alternate);
    default:
      return isTransparent(node) ? of(...children(node)) : NONE;
  }
}

/** What a clock tells at this very node. */
function readingOf(node: Node): Clock {
  if (node.type === "MemberExpression") {
    const name = nameOf(node);
    return MEASURING.includes(name) ? MEASURED : name === "Date.now" ? MOMENT : NONE;
  }
  const isDate = node.type === "NewExpression" && nameOf(node.callee as Node) === "Date";
  return isDate && (node.arguments as Node[]).length === 0 ? MOMENT : NONE;
}

/** Whether a node's value is that of its parts. */
const isTransparent = ({ type }: Node) =>
  /^(Array|Await|Unary|Logical|Template|Chain|Parenthesized|Spread|TSAs|TSNonNull|TSSatisfies)/.test(type);

const isFunction = ({ type }: Node) => /Function/.test(type);

/** The expressions that a function returns. */
function returnedBy({ body }: Node): Node[] {
  if ((body as Node).type !== "BlockStatement") return [body as Node];
  return [...walk(body as Node, isFunction)].flatMap(({ type, argument }) =>
    type === "ReturnStatement" && argument ? [argument as Node] : [],
  );
}

/** `a.b.c` of a callee, without the calls, `as` and `!` in between; a literal's text; "" of others. */
function nameOf(node: Node): string {
  switch (node.type) {
    case "Identifier":
      return node.name as string;
    case "Literal":
      return String(node.value);
    case "MemberExpression": {
      const object = nameOf(node.object as Node);
      return node.computed ? object : `${object}.${nameOf(node.property as Node)}`;
    }
    case "CallExpression":
      return nameOf(node.callee as Node);
    case "TaggedTemplateExpression":
      return nameOf(node.tag as Node);
    case "AwaitExpression":
      return nameOf(node.argument as Node);
    case "TSNonNullExpression":
    case "TSAsExpression":
    case "ChainExpression":
    case "ParenthesizedExpression":
      return nameOf(node.expression as Node);
    default:
      return "";
  }
}

function children(node: Node): Node[] {
  return Object.values(node)
    .flat()
    .filter((value): value is Node => typeof (value as Node | null)?.type === "string");
}

/** A node and all below it, but for what is below a node that `isEnd`. */
function* walk(node: Node, isEnd: (node: Node) => boolean = () => false): Generator<Node> {
  yield node;
  if (isEnd(node)) return;
  for (const child of children(node)) yield* walk(child, isEnd);
}
