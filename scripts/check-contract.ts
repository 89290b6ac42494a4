import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** A statement of the contract: a numbered rule (`4.2.1`), or a section with prose or a table. */
export interface Rule {
  number: string;
  /** The text of the rule, or the title of the section. */
  text: string;
  /** Whether the rule only says that something is not shown, so that there is nothing to test. */
  silent: boolean;
}

/** The title of a test and its file. */
export interface Title {
  text: string;
  file: string;
}

/** The tests of each rule, and the problems found. */
export interface Coverage {
  titles: Map<string, Title[]>;
  untested: Rule[];
  /** Titles that name an unknown rule. */
  unknown: { number: string; title: Title }[];
}

const HEADING = /^#{2,3} (\d+(?:\.\d+)*)\.? (.+)$/;
const NUMBERED = /^(\d+)\. (.+)$/;
const OTHER_HEADING = /^# /;

/**
 * The rules of the contract, in order.
 *
 * @param contract Markdown: numbered headings, numbered lists, tables, prose
 */
export function rulesOf(contract: string): Rule[] {
  const rules: Rule[] = [];
  let section: { number: string; title: string } | undefined;
  let prose = "";
  let numbered: Rule[] = [];

  function endSection(): void {
    if (section && prose !== "") {
      rules.push({ number: section.number, text: section.title, silent: saysOnlyNotShown(prose) });
    }
    rules.push(...numbered);
    prose = "";
    numbered = [];
  }

  for (const line of contract.split("\n").map((text) => text.trim())) {
    const heading = HEADING.exec(line);
    const item = NUMBERED.exec(line);
    if (heading || OTHER_HEADING.test(line)) {
      endSection();
      section = heading ? { number: heading[1] as string, title: heading[2] as string } : undefined;
    } else if (item && section) {
      const text = item[2] as string;
      numbered.push({ number: `${section.number}.${item[1]}`, text, silent: saysOnlyNotShown(text) });
    } else if (line !== "" && line !== "Rules:") {
      // Every table counts as a statement.
      prose += line.startsWith("|") ? "Table. " : `${line} `;
    }
  }
  endSection();
  return rules;
}

/** Whether each sentence ends with "not shown". */
function saysOnlyNotShown(text: string): boolean {
  return text
    .split(/(?<=\.)\s+/)
    .filter((sentence) => sentence.trim() !== "")
    .every((sentence) => /: not shown\.?$/.test(sentence.trim()));
}

const LITERAL = /(["'`])((?:\\.|(?!\1)[^\\\n])*?§(?:\\.|(?!\1)[^\\\n])*)\1/g;
const NOT_RUN = /\.(?:skip|todo)\s*\(\s*$/;

/**
 * The titles in a test file that name rules: string literals that contain `§`, in calls, rows of `each`, or
 * templates. Ignores comments and skipped tests.
 */
export function titlesOf(source: string): string[] {
  const code = source.replace(/^\s*(?:\/\/|\/?\*).*$/gm, "");
  return [...code.matchAll(LITERAL)]
    .filter((match) => !NOT_RUN.test(code.slice(0, match.index)))
    .map((match) => match[2] as string);
}

/** Compares rules with titles. A title may name several rules. */
export function compare(rules: readonly Rule[], titles: readonly Title[]): Coverage {
  const byRule = new Map<string, Title[]>(rules.map(({ number }) => [number, []]));
  const unknown: Coverage["unknown"] = [];
  for (const title of titles) {
    for (const [, number] of title.text.matchAll(/§(\d+(?:\.\d+)*)/g)) {
      const known = byRule.get(number as string);
      if (known) known.push(title);
      else unknown.push({ number: number as string, title });
    }
  }
  const untested = rules.filter(({ number, silent }) => !silent && byRule.get(number)?.length === 0);
  return { titles: byRule, untested, unknown };
}

/** A report of the tests of each rule. */
export function describe(rules: readonly Rule[], coverage: Coverage): string {
  const lines = rules.flatMap((rule) => {
    const titles = coverage.titles.get(rule.number) ?? [];
    const none = rule.silent ? "(not shown; nothing to test)" : "NO TEST";
    const held = titles.length > 0 ? titles.map(({ text, file }) => `${text}  [${file}]`) : [none];
    return held.map((text, i) => `${(i === 0 ? `§${rule.number}` : "").padEnd(8)}${text}`);
  });
  for (const { number, text } of coverage.untested) lines.push(`no test names §${number}: ${text}`);
  for (const { number, title } of coverage.unknown) {
    lines.push(`the contract has no §${number}, named by "${title.text}" in ${title.file}`);
  }
  return lines.join("\n");
}

function main(contract: string, testFolder: string): number {
  const rules = rulesOf(readFileSync(contract, "utf8"));
  const titles = globSync("**/*.test.ts", { cwd: testFolder })
    .sort()
    .flatMap((file) =>
      titlesOf(readFileSync(path.join(testFolder, file), "utf8")).map((text) => ({ text, file })),
    );
  const coverage = compare(rules, titles);
  console.log(describe(rules, coverage));
  const { untested, unknown } = coverage;
  const stated = rules.filter(({ silent }) => !silent).length;
  console.log(`\n${stated - untested.length} of ${stated} rules have a test`);
  if (rules.length === 0) console.error(`${contract} holds no rules`);
  return rules.length === 0 || untested.length > 0 || unknown.length > 0 ? 1 : 0;
}

if (import.meta.main) {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const [contract = path.join(root, "docs/contract.md"), testFolder = path.join(root, "test")] =
    process.argv.slice(2);
  process.exitCode = main(contract, testFolder);
}
