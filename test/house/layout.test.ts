import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** What each folder may import from; files right below src/ are open to all, but for main.ts and service.ts. */
const MAY_IMPORT: Record<string, string[]> = {
  "src/api": ["src/db", "gen"],
  "src/db": ["gen"],
  "src/delivery": ["src/db"],
  "src/temporal": ["src/delivery", "src/db", "workflows"],
  workflows: [],
  // The settings page knows the contract, and what is common to all; it calls the API like everybody else.
  "web/src": ["gen"],
};

interface Import {
  from: string;
  to: string;
  typeOnly: boolean;
}

function importsOf(folder: string): Import[] {
  return globSync(`${folder}/**/*.{ts,tsx}`, { cwd: root }).flatMap((file) => {
    const source = readFileSync(path.join(root, file), "utf8");
    const statements = source.matchAll(/^(?:import|export)\s+(type\s)?[^;]*?from\s+"(\.[^"]+)";$/gm);
    return [...statements].map(([, type, target]) => ({
      from: file,
      to: path.relative(root, path.resolve(root, path.dirname(file), target as string)),
      typeOnly: type !== undefined,
    }));
  });
}

function folderOf(file: string): string {
  const [first = "", second = "", ...rest] = file.split(path.sep);
  if (first === "web") return `web/${second}`;
  return first === "src" && rest.length > 0 ? `src/${second}` : first;
}

test.each(Object.entries(MAY_IMPORT))(
  "%s imports only from itself, from what is common, and from %j",
  (folder, allowed) => {
    const imports = importsOf(folder);
    expect(imports.length).toBeGreaterThan(0);
    const forbidden = imports.filter(({ to, typeOnly }) => {
      if (folder === "workflows" && typeOnly) return false;
      const target = folderOf(to);
      return (
        ["main.ts", "service.ts"].includes(path.relative("src", to)) ||
        ![folder, "src", ...allowed].includes(target)
      );
    });
    expect(forbidden).toEqual([]);
  },
);

test("workflows import nothing but Temporal's packages, themselves and types", () => {
  for (const file of globSync("workflows/**/*.ts", { cwd: root })) {
    const source = readFileSync(path.join(root, file), "utf8");
    const packages = [...source.matchAll(/^import\s+(?!type\s)[^;]*?from\s+"([^".][^"]*)";$/gm)];
    for (const [, name] of packages) expect(name).toMatch(/^@temporalio\/(workflow|common)$/);
  }
});

test("only main.ts and what starts it in development import the wiring", () => {
  const importers = importsOf("src").filter(({ to }) => to === path.join("src", "service.ts"));
  expect(importers.length).toBeGreaterThan(0);
  for (const { from } of importers)
    expect(from === path.join("src", "main.ts") ? "src/dev" : folderOf(from)).toBe("src/dev");
});
