/**
 * Writes list.json: a sample of small changes to the code, one of which at a time the tests have to notice.
 *
 *   node test/mutants/make.ts [SEED]
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseSync } from "rolldown/utils";
import { randomOf } from "../support/random.ts";
import { LIST, lineOf, type Mutant, mutated } from "./mutant.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The number of mutants in the list. */
const SIZE = 300;
/** The part of them that changes the text of SQL statements. */
const SQL_SHARE = 0.3;
const FOLDERS = [
  "src/queue",
  "src/delivery",
  "src/keys",
  "src/webhooks",
  "src/events",
  "src/log",
  "src/calls",
  "src/contract",
];

/** A pattern, and what replaces a match. */
type Change = [pattern: RegExp, replacement: string | ((match: string) => string)];

const swap = (pattern: RegExp, replacements: Record<string, string>): Change => [
  pattern,
  (match) => replacements[match] as string,
];

const CODE: Change[] = [
  swap(/(?<= )(<|<=|>|>=|===|!==|&&|\|\||-|\*|\/)(?= )/g, {
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
  }),
  swap(/\b(true|false)\b/g, { true: "false", false: "true" }),
  [/!(?=[\w(])/g, ""],
  [
    /(?<![\w.])\d+(?![\w.])/g,
    (number) => String(Number(number) < 10 ? Number(number) + 1 : Number(number) * 2),
  ],
  [/(?<=\b(if|while) )\(.*\)(?= )/g, (condition) => `(!${condition})`],
  [/(?<=\breturn )[^;]*[^\w;][^;]*(?=;$)/g, "undefined"],
  [/(?<=^\s*)(await )?[\w.#]+\(.*\);$/g, "void 0;"],
];

const SQL: Change[] = [
  swap(/(?<= )(<=|>=|<|>|=|<>|\+|-)(?= )/g, {
    "<=": "<",
    ">=": ">",
    "<": "<=",
    ">": ">=",
    "=": "<>",
    "<>": "=",
    "+": "-",
    "-": "+",
  }),
  swap(/\bis not null\b|\bis null\b/g, { "is not null": "is null", "is null": "is not null" }),
  swap(/\b(and|or|desc|least|greatest|min|max)\b/g, {
    and: "or",
    or: "and",
    desc: "asc",
    least: "greatest",
    greatest: "least",
    min: "max",
    max: "min",
  }),
  swap(/\b(not )?exists\b/g, { "not exists": "exists", exists: "not exists" }),
  [/\bis distinct from\b/g, "is not distinct from"],
  [/(?<=order by [^,()]*), /g, " desc, "],
  [/\blimit (?=:|\$|\d)/g, "limit 1 + "],
  [/\bfor (no key )?update( of \w+)?( skip locked)?/g, ""],
  [/(?<=[\s(])\d+(?=[\s),])/g, (number) => String(Number(number) + 1)],
];
/** Without an assignment, a statement is not SQL: every test would notice. */
const ASSIGNMENT = /\bset\b|^\w+ = .*,|, \w+ = /;

const COMMENT_OR_IMPORT = /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*|^import [\s\S]*?;$/gm;
const TEXT = /`[^`]*`|"[^"\n]*"/g;
const IS_SQL = /\b(select|insert into|update \w+ set|delete from|where|order by)\b/;

const blank = (text: string) => text.replaceAll(/[^\n]/g, " ");

/** The code of a source and its SQL, each with spaces in the place of all else. */
function partsOf(source: string): { code: string; sql: string } {
  const bare = source.replaceAll(COMMENT_OR_IMPORT, blank);
  let sql = blank(bare);
  for (const { 0: text, index } of bare.matchAll(TEXT))
    if (IS_SQL.test(text)) sql = sql.slice(0, index) + text + sql.slice(index + text.length);
  return { code: bare.replaceAll(TEXT, blank), sql };
}

/** Mutants that change one place of a part of a file. The changed file parses. */
function mutantsOf(file: string, which: "code" | "sql", changes: readonly Change[]): Mutant[] {
  const source = readFileSync(`${root}/${file}`, "utf8");
  const found: Mutant[] = [];
  let lineStart = 0;
  for (const line of partsOf(source)[which].split("\n")) {
    for (const [pattern, to] of changes)
      for (const { index, 0: match } of line.matchAll(pattern)) {
        const place = lineStart + index;
        const from = source.slice(place, place + match.length);
        const { text, column, nth } = lineOf(source, place);
        found.push({
          id: 0,
          file,
          line: text,
          nth,
          column,
          from,
          to: typeof to === "string" ? to : to(from),
        });
      }
    lineStart += line.length + 1;
  }
  return found.filter(
    (mutant) =>
      !(which === "sql" && mutant.from === "=" && ASSIGNMENT.test(mutant.line)) &&
      parseSync(file, mutated(source, mutant)).errors.length === 0,
  );
}

const seed = Number(process.argv[2] ?? 1);
const random = randomOf(seed);
const files = FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: root })).sort();

/** Takes some of the mutants of all files at random. */
function sample(size: number, which: "code" | "sql", changes: readonly Change[]): Mutant[] {
  const left = files.flatMap((file) => mutantsOf(file, which, changes));
  return Array.from({ length: size }, () => left.splice(Math.floor(random() * left.length), 1)[0] as Mutant);
}

const sqlSize = Math.round(SIZE * SQL_SHARE);
const mutants = [...sample(sqlSize, "sql", SQL), ...sample(SIZE - sqlSize, "code", CODE)].map(
  (mutant, index) => ({ ...mutant, id: index + 1 }),
);
writeFileSync(LIST, `${JSON.stringify({ seed, mutants }, null, 1)}\n`);
console.log(`${mutants.length} mutants of ${new Set(mutants.map(({ file }) => file)).size} files`);
