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

const MOMENT = String.raw`(?:Date\.now\(\)|new Date\(\))`;
const MEASURING = /\b(performance\.now|process\.hrtime)\b/g;
/** Matchers that tell which of two moments is earlier. Others compare a moment with what was stored of it. */
const ORDERING = /\.toBe(LessThan|GreaterThan|CloseTo|Within)/;
/** Functions of Vitest, with the place of the limit that each takes after its function. */
const LIMITED: [RegExp, number][] = [
  [/^(test|it)\b/, 2],
  [/^(beforeAll|beforeEach|afterAll|afterEach|onTestFinished)\b/, 1],
];
const LIMIT = /^(timeout|testTimeout|hookTimeout): (?!PATIENCE_MS$|\[)/;

/**
 * Finds the assertions of a test file that use a clock, and the waits whose limit is not `PATIENCE_MS`. A test that measures a
 * duration at all is taken to assert it. A moment is followed from variable to variable.
 */
export function findClocks(source: string, lang: "ts" | "tsx" = "ts"): Finding[] {
  const all = [...walk(parseAst(source, { lang }) as unknown as Node)];
  const textOf = ({ start, end }: Node) => source.slice(start, end);
  const findings = new Map<string, Finding>();
  const add = (rule: Finding["rule"], start: number, length: number) => {
    const line = source.slice(0, start).split("\n").length;
    const [text = ""] = source.slice(start, start + length).split("\n");
    findings.set(`${line} ${rule}`, { line, rule, text });
  };
  for (const { 0: text, index } of source.matchAll(MEASURING))
    add("a clock in an assertion", index, text.length);
  const moments = momentsOf(all, textOf);
  for (const node of all) {
    const text = textOf(node);
    if (node.type === "Property" && LIMIT.test(text)) add("a limit of a wait", node.start, text.length);
    if (node.type !== "CallExpression") continue;
    const isOrder = ORDERING.test(text) && new RegExp(moments).test(text);
    if (/^expect\b/.test(text) && (isOrder || new RegExp(MOMENT).test(text)))
      add("a clock in an assertion", node.start, text.length);
    const callee = textOf(node.callee as Node);
    const [, place = -1] = LIMITED.find(([name]) => name.test(callee)) ?? [];
    const limit = (node.arguments as Node[])[place];
    if (limit && !/Function/.test(limit.type)) add("a limit of a wait", limit.start, textOf(limit).length);
    if (/^vi\.wait(For|Until)$/.test(callee)) add("a limit of a wait", node.start, text.length);
  }
  return [...findings.values()].sort((one, other) => one.line - other.line);
}

/** A pattern of the variables whose values begin with a moment, or with another such variable. */
function momentsOf(all: readonly Node[], textOf: (node: Node) => string): string {
  const values = all.flatMap(({ type, id, init, left, right }) => {
    if (type === "VariableDeclarator" && init) return [[textOf(id as Node), textOf(init as Node)] as const];
    return type === "AssignmentExpression" ? [[textOf(left as Node), textOf(right as Node)] as const] : [];
  });
  const names = new Set<string>();
  for (let size = -1; size !== names.size; ) {
    size = names.size;
    const moment = new RegExp(`^(?:${[MOMENT, ...[...names].map((n) => `${n}\\b`)].join("|")})`);
    for (const [name, value] of values) if (/^\w+$/.test(name) && moment.test(value)) names.add(name);
  }
  return String.raw`\b(?:${[MOMENT, ...names].join("|")})(?![\w:])`;
}

/** A node and all below it. */
function* walk(node: Node): Generator<Node> {
  yield node;
  for (const value of Object.values(node).flat())
    if (typeof (value as Node | null)?.type === "string") yield* walk(value as Node);
}
