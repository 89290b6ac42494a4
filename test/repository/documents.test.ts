import { existsSync, globSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { read, root } from "./project.ts";

const documents = globSync(["*.md", "docs/*.md"], { cwd: root }).sort();
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };

/** The anchors of a document's headings, as sites that show Markdown make them. */
function anchorsOf(file: string): string[] {
  return [...read(file).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}

test.each(documents)(
  "every link of %s within the project leads somewhere, and every npm script that it names exists",
  (file) => {
    // Code in which an index is followed by a call looks like a link.
    const prose = read(file).replace(/^```.*\n[\s\S]*?^```$/gm, "");
    for (const [, target = ""] of prose.matchAll(/\]\((?!https?:)([^)]+)\)/g)) {
      const [name = "", anchor] = target.split("#");
      const linked = name === "" ? file : path.join(path.dirname(file), name);
      expect(existsSync(path.join(root, linked)), `${target} in ${file}`).toBe(true);
      if (anchor !== undefined) expect(anchorsOf(linked), `${target} in ${file}`).toContain(anchor);
    }
    for (const [, name = ""] of read(file).matchAll(/npm run ([a-z][\w:-]*)/g))
      expect(scripts).toHaveProperty([name]);
  },
);

test("every npm script first looks at the Node it runs under", () => {
  // postinstall finds out whether that Node runs at all.
  const { postinstall: _, ...others } = scripts;
  for (const [name, command] of Object.entries(others))
    expect(command, name).toMatch(/^node scripts\/preflight\.cjs && /);
});

test("CI runs the README's commands: the install, the test command and the demo", () => {
  const ci = read(".ci/run");
  const readme = read("README.md");
  for (const command of ["npm install", "npm test", "npm run demo -- --exit"]) {
    expect(readme).toContain(command);
    expect(ci).toMatch(new RegExp(`^ *(if )?step "[^"]+" ${command}(?: --no-[a-z]+)*(?:;|$)`, "m"));
  }
});

/** All source code, as one text. */
function sources(...folders: string[]): string {
  return folders.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: root }).map(read)).join("\n");
}

test("every log line that docs/operations.md lists is one that the service writes", () => {
  const section = /### Log lines\n([\s\S]*?)\n### /.exec(read("docs/operations.md"))?.[1] ?? "";
  const quoted = [...section.matchAll(/`([^`\n]+)`/g)].map(([, text = ""]) => text);
  const lines = quoted.filter((text) => text.includes(" "));
  expect(lines.length).toBeGreaterThan(8);
  const code = sources("src");
  const isWritten = (line: string) => line.split("…").every((part) => code.includes(part.trim()));
  expect(lines.filter((line) => !isWritten(line))).toEqual([]);
});

test("every constant that docs/architecture.md names exists", () => {
  const names = read("docs/architecture.md").match(/(?<=`)[A-Z][A-Z\d]*_[A-Z\d_]+(?=`)/g) ?? [];
  expect(names.length).toBeGreaterThan(20);
  const code = sources("src", "workflows");
  expect([...new Set(names)].filter((name) => !new RegExp(`\\b${name}\\b`).test(code))).toEqual([]);
});

const UNITS: Record<string, number> = {
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  ms: 1,
  s: 1_000,
  seconds: 1_000,
  min: 60_000,
  minutes: 60_000,
};
const UNIT = `(${Object.keys(UNITS).join("|")})\\b`;

/** The default of a setting, or the values of a constant, of which several files may have one of the same name. */
function valuesOf(name: string): number[] {
  const setting = new RegExp(`^${name}=(\\d+)(?:${UNIT})?$`, "m").exec(read(".env.example"));
  if (setting) return [Number(setting[1]) * (UNITS[setting[2] ?? ""] ?? 1)];
  const constants = sources("src", "workflows").matchAll(new RegExp(`const ${name} = ([^;]+);`, "g"));
  return [...constants].map(([, expression = ""]) => {
    const numbers = expression.replaceAll("_", "").replaceAll("KIB", "1024").replaceAll("MIB", "1048576");
    return numbers
      .split("*")
      .reduce((product, factor) => product * Number(factor), /_S$/.test(name) ? 1_000 : 1);
  });
}

test.each(documents)("values that %s gives with their name, such as `5 s (A_MS)`, are right", (file) => {
  const given = new RegExp(
    `(\\d[\\d,]*)(?: ${UNIT})?[^|(\`\\d]{0,40}\\(\`([A-Z][A-Z\\d]*_[A-Z\\d_]+)\`\\)`,
    "g",
  );
  for (const [text, amount = "", unit = "", name = ""] of read(file).matchAll(given)) {
    expect(valuesOf(name), text).toContain(Number(amount.replaceAll(",", "")) * (UNITS[unit] ?? 1));
  }
});

test("every test that docs/security.md names exists", () => {
  const [, table = ""] = read("docs/security.md").split("## Attacks and results");
  const named = [...table.matchAll(/`([a-z\d-]+(?:\/[a-z\d-]+)+)`/g)].map(([, name = ""]) => name);
  expect(named.length).toBeGreaterThan(20);
  const exists = (name: string) => globSync(`test/${name}{,.slow}.test.ts`, { cwd: root }).length > 0;
  expect(named.filter((name) => !exists(name))).toEqual([]);
});
