import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";
import { rulesOf, titlesOf } from "../../scripts/check-contract.ts";
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

Rules:
1. It can be made twice.
2. What it is made of: not shown. How long it takes: not shown.
`;

const numbers = (contract: string, silent: boolean) =>
  rulesOf(contract)
    .filter((rule) => rule.silent === silent)
    .map(({ number }) => number)
    .join(" ");

test("every numbered rule, and every section with prose or a table, needs a test unless it says only what is not shown", () => {
  expect(numbers(CONTRACT, false)).toBe("1 2.1 3.1");
  expect(numbers(CONTRACT, true)).toBe("2.2 3.2");
});

test("the project's contract has 29 rules to test, and 5 that say only what is not shown", () => {
  const contract = read("docs/contract.md");
  expect(numbers(contract, false)).toBe(
    "1 2.1 2.2 2.3 3 4 4.1 4.2 4.2.1 4.2.2 4.3 4.3.1 4.3.2 5.1 5.2 5.3 5.4 5.5 " +
      "6.1.1 6.1.2 6.1.3 6.1.4 6.2 6.3 7.1 7.2 7.3 8 9.1",
  );
  expect(numbers(contract, true)).toBe("4.2.3 4.3.3 5.6 7.4 9.2");
});

test.each([
  [`test("${S}1: plain", () => {});`, 1],
  [`  it('${S}2: single quotes', () => {});`, 1],
  [`test.each([["${S}3: row of an each", 1]])("%s", () => {});`, 1],
  [`test(\`${S}5: template \${name}\`, () => {});`, 1],
  [`test(\n  "${S}8: on a line of its own",\n  () => {},\n);`, 1],
  [`test.skip("${S}9: skipped", () => {});`, 0],
  [`test.todo("${S}9: to do");`, 0],
  [`// test("${S}9: in a comment", () => {});`, 0],
  [` * test("${S}9: in a comment", () => {});`, 0],
])("titles of tests that run are found in: %s", (source, count) => {
  expect(titlesOf(source)).toHaveLength(count);
});

const ALL = [`test("${S}1, ${S}2.1: both hold", () => {});`, `test("${S}3.1: it holds", () => {});`];

function check(contract: string, titles: string[]): string {
  const folder = newFolder({ "contract.md": contract, "test/deep/some.test.ts": titles.join("\n") });
  const args = ["scripts/check-contract.ts", path.join(folder, "contract.md"), path.join(folder, "test")];
  const { stdout, status } = spawnSync(process.execPath, args, { cwd: root, encoding: "utf8" });
  return `${stdout}${status}`;
}

test("the check passes when a test names each rule, and lists the titles by rule", () => {
  const printed = check(CONTRACT, ALL);
  expect(printed).toContain(`${S}3.1    ${S}3.1: it holds  [${path.join("deep", "some.test.ts")}]\n`);
  expect(printed).toMatch(/\n0$/);
});

test.each([
  ["a rule without a test", CONTRACT, ALL.slice(0, 1), `no test names ${S}3.1: It can be made twice.`],
  ["an unknown rule", CONTRACT, [...ALL, `test("${S}4.7: it", () => {});`], `the contract has no ${S}4.7`],
  ["a contract in which it finds no rules", "# Empty\n", [], ""],
])("the check fails for %s, and names it", (_what, contract, titles, says) => {
  const printed = check(contract, titles);
  expect(printed).toContain(says);
  expect(printed).toMatch(/\n1$/);
});
