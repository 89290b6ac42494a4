import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const documents = globSync(["*.md", "docs/*.md"], { cwd: root }).sort();
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };

function read(file: string): string {
  return readFileSync(path.join(root, file), "utf8");
}

/** The anchors of a document's headings, as sites that show Markdown make them. */
function anchorsOf(file: string): string[] {
  return [...read(file).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}

test.each(documents)("every link of %s within the project leads somewhere", (file) => {
  // Code in which an index is followed by a call looks like a link.
  const prose = read(file).replace(/^```.*\n[\s\S]*?^```$/gm, "");
  for (const [, target = ""] of prose.matchAll(/\]\((?!https?:)([^)]+)\)/g)) {
    const [name = "", anchor] = target.split("#");
    const linked = name === "" ? file : path.join(path.dirname(file), name);
    expect(existsSync(path.join(root, linked)), `${target} in ${file}`).toBe(true);
    if (anchor !== undefined) expect(anchorsOf(linked), `${target} in ${file}`).toContain(anchor);
  }
});

test.each(documents)("every npm script that %s names exists", (file) => {
  for (const [, name = ""] of read(file).matchAll(/npm run ([a-z][\w:-]*)/g)) {
    expect(Object.keys(scripts), file).toContain(name);
  }
});

test("every npm script first looks at the Node it runs under", () => {
  for (const [name, command] of Object.entries(scripts)) {
    expect(command, name).toMatch(/^node scripts\/preflight\.cjs && /);
  }
});

test("CI runs the README's commands: the install, the test command and the demo", () => {
  const ci = read(".ci/run");
  const readme = read("README.md");
  for (const command of ["npm install", "npm test", "npm run demo -- --exit"]) {
    expect(readme).toContain(command);
    expect(ci).toMatch(new RegExp(`^ *(if )?step "[^"]+" ${command}(?: --no-[a-z]+)*(?:;|$)`, "m"));
  }
});
