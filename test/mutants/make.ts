/**
 * Writes list.json: a sample of small changes to the code, one of which at a time the tests have to notice.
 *
 *   node test/mutants/make.ts [SEED]
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseAst } from "rolldown/parseAst";
import { randomOf } from "../support/random.ts";
import { LIST, lineOf, type Mutant } from "./mutant.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The number of mutants in the list. */
const SIZE = 300;
/** The part of them that changes the text of SQL statements. */
const SQL_SHARE = 0.3;
const FOLDERS = ["src/db/queue", "src/delivery", "src/api/auth", "src/api/services", "src/contract"];

/** A node of the syntax tree. */
interface Node {
  type: string;
  start: number;
  end: number;
  [property: string]: unknown;
}

/** A change of a part of a file's text. */
interface Change {
  start: number;
  end: number;
  to: string;
}

const OPERATORS: Record<string, string> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "&&": "||",
  "||": "&&",
  "-": "+",
  "*": "/",
  "/": "*",
};

/** Changes of SQL: a pattern, and what stands in the place of what it finds. */
const SQL_CHANGES: [RegExp, (found: string) => string][] = [
  [/ <= /g, () => " < "],
  [/ >= /g, () => " > "],
  [/ < /g, () => " <= "],
  [/ > /g, () => " >= "],
  [/ = /g, () => " <> "],
  [/ <> /g, () => " = "],
  [/\bis distinct from\b/g, () => "is not distinct from"],
  [/\bis not null\b/g, () => "is null"],
  [/\bis null\b/g, () => "is not null"],
  [/\band\b/g, () => "or"],
  [/\bor\b/g, () => "and"],
  [/\bnot exists\b/g, () => "exists"],
  [/(?<!not )(?<!if )\bexists\b/g, () => "not exists"],
  [/\b(least|greatest|min|max)\(/g, (found) => SWAPPED[found] as string],
  [/\bdesc\b/g, () => "asc"],
  [/(?<=order by [^,()]*), /g, () => " desc, "],
  [/\blimit (?=:|\$|\d)/g, () => "limit 1 + "],
  [/\bfor (no key )?update( of \w+)?( skip locked)?/g, () => ""],
  [/(?<=[\s(])\d+(?=[\s),])/g, (found) => String(Number(found) + 1)],
  [/ \+ /g, () => " - "],
  [/ - /g, () => " + "],
];
const SWAPPED: Record<string, string> = {
  "least(": "greatest(",
  "greatest(": "least(",
  "min(": "max(",
  "max(": "min(",
};
const ASSIGNMENT = /\bset\b|^\w+ = .*,|, \w+ = /;
const IS_SQL = /\b(select|insert into|update \w+ set|delete from|where|order by)\b/;

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && typeof (value as Node).type === "string";
}

/** Calls back for each node that is code, and not a type. */
function visit(node: Node, parent: Node | undefined, found: (node: Node, parent: Node | undefined) => void) {
  if (
    node.type.startsWith("TS") &&
    !["TSAsExpression", "TSNonNullExpression", "TSSatisfiesExpression"].includes(node.type)
  )
    return;
  if (node.type === "ImportDeclaration") return;
  found(node, parent);
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child, node, found);
  }
}

/** The changes of a file's code. */
function codeChanges(source: string, program: Node): Change[] {
  const changes: Change[] = [];
  const text = ({ start, end }: Node) => source.slice(start, end);
  visit(program, undefined, (node) => {
    const { left, right, operator, test, argument, expression } = node as unknown as Record<string, Node> & {
      operator: unknown;
    };
    const to = typeof operator === "string" ? OPERATORS[operator] : undefined;
    if (["BinaryExpression", "LogicalExpression"].includes(node.type) && to && left && right) {
      const start = source.indexOf(operator as string, left.end);
      changes.push({ start, end: start + (operator as string).length, to });
    }
    if (["IfStatement", "ConditionalExpression", "WhileStatement"].includes(node.type) && test) {
      changes.push({ start: test.start, end: test.end, to: `!(${text(test)})` });
    }
    if (node.type === "UnaryExpression" && operator === "!" && argument) {
      changes.push({ start: node.start, end: argument.start, to: "" });
    }
    if (node.type === "Literal" && typeof node.value === "boolean") {
      changes.push({ ...at(node), to: String(!node.value) });
    }
    if (node.type === "Literal" && typeof node.value === "number") {
      changes.push({ ...at(node), to: String(node.value < 10 ? node.value + 1 : node.value * 2) });
    }
    if (node.type === "ExpressionStatement" && expression) {
      const called = expression.type === "AwaitExpression" ? (expression.argument as Node) : expression;
      if (called.type === "CallExpression") changes.push({ ...at(node), to: "void 0;" });
    }
    if (
      node.type === "ReturnStatement" &&
      argument &&
      argument.type !== "Literal" &&
      argument.type !== "Identifier"
    ) {
      changes.push({ ...at(argument), to: "undefined" });
    }
  });
  return changes;
}

function at({ start, end }: Node): { start: number; end: number } {
  return { start, end };
}

/** The changes of a file's SQL. */
function sqlChanges(source: string, program: Node): Change[] {
  const changes: Change[] = [];
  const inText = (start: number, end: number) => {
    const text = source.slice(start, end);
    for (const [pattern, to] of SQL_CHANGES) {
      for (const { index, 0: found } of text.matchAll(pattern)) {
        // Without an assignment, the statement is not SQL: every test would notice.
        if (found === " = " && ASSIGNMENT.test(lineOf(source, start + index).text)) continue;
        changes.push({ start: start + index, end: start + index + found.length, to: to(found) });
      }
    }
  };
  visit(program, undefined, (node) => {
    if (!IS_SQL.test(source.slice(node.start, node.end))) return;
    if (node.type === "TemplateLiteral")
      for (const { start, end } of node.quasis as Node[]) inText(start, end);
    if (node.type === "Literal" && typeof node.value === "string") inText(node.start + 1, node.end - 1);
  });
  return changes;
}

/** The mutants of a file, of which each changes a part of one line. */
function mutantsOf(
  file: string,
  changesOf: (source: string, program: Node) => Change[],
): Omit<Mutant, "id">[] {
  const source = readFileSync(`${root}/${file}`, "utf8");
  const changes = changesOf(source, parseAst(source, { lang: "ts" }) as unknown as Node);
  return changes.flatMap(({ start, end, to }) => {
    const from = source.slice(start, end);
    if (from.includes("\n") || from === to) return [];
    const { text, column, nth } = lineOf(source, start);
    return [{ file, line: text, nth, column, from, to }];
  });
}

const seed = Number(process.argv[2] ?? 1);
const random = randomOf(seed);
const files = FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: root })).sort();

/** Takes some of the mutants at random. */
function sample(all: Omit<Mutant, "id">[], size: number): Omit<Mutant, "id">[] {
  const left = [...all];
  return Array.from({ length: size }, () => left.splice(Math.floor(random() * left.length), 1)[0] as Mutant);
}

const sqlSize = Math.round(SIZE * SQL_SHARE);
const chosen = [
  ...sample(
    files.flatMap((file) => mutantsOf(file, sqlChanges)),
    sqlSize,
  ),
  ...sample(
    files.flatMap((file) => mutantsOf(file, codeChanges)),
    SIZE - sqlSize,
  ),
];
const mutants: Mutant[] = chosen.map((mutant, index) => ({ id: index + 1, ...mutant }));
writeFileSync(LIST, `${JSON.stringify({ seed, mutants }, null, 1)}\n`);
console.log(`${mutants.length} mutants of ${new Set(mutants.map(({ file }) => file)).size} files`);
