import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { compare, rulesOf, titlesOf } from "../../scripts/check-contract.ts";
import { newFolder, read, root } from "./project.ts";

/** The sign is not written out in this file: the script would take its small inputs for titles. */
const S = "\u00a7";

const CONTRACT = `# A service

This text is about the document.

## 1. What it does

It does things.

## 2. Resources

### 2.1 A thing

| Field | Type |
|---|---|
| Id | integer |

Colours: not shown.

### 2.2 Nothing known

Shape: not shown. Size: not shown.

## 3. Operations

### 3.1 Make

Rules:
1. It can be made twice.
2. What it is made of: not shown. How long it takes: not shown.

## 4. Errors

1. They have a code.
`;

/** Runs the script on a contract and one test file. */
function check(contract: string, testFile: string): { status: number | null; stdout: string } {
  const folder = newFolder();
  mkdirSync(path.join(folder, "test/deep"), { recursive: true });
  writeFileSync(path.join(folder, "contract.md"), contract);
  writeFileSync(path.join(folder, "test/deep/some.test.ts"), testFile);
  const script = path.join(root, "scripts/check-contract.ts");
  const args = [script, path.join(folder, "contract.md"), path.join(folder, "test")];
  const { status, stdout } = spawnSync(process.execPath, args, { encoding: "utf8" });
  return { status, stdout };
}

const ALL = ["1", "2.1", "3.1.1", "4.1"].map((rule) => `test("${S}${rule}: it holds", () => {});`);

test("every numbered rule, and every section that states something in prose or a table, is a rule", () => {
  expect(rulesOf(CONTRACT).map(({ number }) => number)).toEqual(["1", "2.1", "2.2", "3.1.1", "3.1.2", "4.1"]);
});

test("a rule that says only what is not shown needs no test; a table beside it does", () => {
  const silent = rulesOf(CONTRACT).filter((rule) => rule.silent);
  expect(silent.map(({ number }) => number)).toEqual(["2.2", "3.1.2"]);
});

test("the project's contract has 29 rules to test, and 5 that say only what is not shown", () => {
  const rules = rulesOf(read("docs/contract.md"));
  expect(rules.filter(({ silent }) => !silent).map(({ number }) => number)).toEqual(
    (
      "1 2.1 2.2 2.3 3 4 4.1 4.2 4.2.1 4.2.2 4.3 4.3.1 4.3.2 5.1 5.2 5.3 5.4 5.5 " +
      "6.1.1 6.1.2 6.1.3 6.1.4 6.2 6.3 7.1 7.2 7.3 8 9.1"
    ).split(" "),
  );
  expect(rules.filter(({ silent }) => silent).map(({ number }) => number)).toEqual(
    "4.2.3 4.3.3 5.6 7.4 9.2".split(" "),
  );
});

test("titles count as calls, rows of an each, and templates; comments and skipped tests do not", () => {
  const titles = titlesOf(
    [
      `test("${S}1: plain", () => {});`,
      `  it('${S}2: single quotes', () => {});`,
      `test.each([["${S}3: row of an each", 1]])("%s", () => {});`,
      `test.for([1])("${S}4: title of a for %i", () => {});`,
      `test(\`${S}5: template \${name}\`, () => {});`,
      `test("both ${S}6 and ${S}7", () => {});`,
      `test(\n  "${S}8: on a line of its own",\n  () => {},\n);`,
      `test.skip("${S}9: skipped", () => {});`,
      `test.todo("${S}9: to do");`,
      `// test("${S}9: in a comment", () => {});`,
      ` * test("${S}9: in a comment", () => {});`,
    ].join("\n"),
  );
  expect(titles.join(" ")).not.toContain(`${S}9`);
  expect(titles).toHaveLength(7);
});

test("a title that names two rules holds both", () => {
  const rules = [
    { number: "1", text: "", silent: false },
    { number: "1.1", text: "", silent: false },
  ];
  const titles = [{ text: `${S}1, ${S}1.1: both hold`, file: "some.test.ts" }];
  expect(compare(rules, titles)).toMatchObject({ untested: [], unknown: [] });
});

test.each([
  {
    what: "passes when each rule is named by a test, and lists the titles by rule",
    titles: ALL,
    says: `${S}3.1.1  ${S}3.1.1: it holds  [${path.join("deep", "some.test.ts")}]`,
    status: 0,
  },
  {
    what: "fails for a rule without a test, and names it",
    titles: ALL.slice(0, 3),
    says: `no test names ${S}4.1: They have a code.`,
    status: 1,
  },
  {
    what: "fails for a title that names a rule the contract does not have",
    titles: [...ALL, `test("${S}4.7: it holds", () => {});`],
    says: `the contract has no ${S}4.7`,
    status: 1,
  },
  { what: "fails for a contract in which it finds no rules", contract: "# Empty\n", titles: [], status: 1 },
])("the check $what", ({ contract = CONTRACT, titles, says = "", status }) => {
  const checked = check(contract, titles.join("\n"));
  expect(checked.stdout).toContain(says);
  expect(checked.status).toBe(status);
});
