import { globSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { circles } from "./circles.ts";
import { read, root } from "./project.ts";

/** What each folder may import from, beside itself. `src` stands for main.ts, service.ts and admin-key.ts: the wiring. */
const MAY_IMPORT: Record<string, string> = {
  "src/contract": "gen",
  "src/config": "src/lib",
  // What is not about webhooks.
  "src/lib": "",
  "src/db": "src/contract gen",
  "src/metrics": "src/config src/contract src/db",
  "src/filters": "src/contract src/lib",
  "src/api": "src/config src/contract src/db src/filters src/lib src/metrics src/temporal gen package.json",
  "src/delivery": "src/config src/contract src/db src/filters src/metrics src/lib workflows",
  "src/embedded": "src/config src/lib src/temporal",
  "src/notices": "src/config src/db",
  "src/startup": "src/config src/contract src/db src/embedded src/lib",
  "src/temporal": "src/config src/contract src/db src/delivery src/metrics src/lib workflows",
  "src/worker": "src/config src/db src/delivery src/metrics src/lib src/startup src/temporal package.json",
  workflows: "",
  // The settings page knows the contract; it calls the API like everybody else.
  "web/src": "src/contract gen",
};

interface Import {
  from: string;
  to: string;
}

function importsOf(folder: string): Import[] {
  return globSync(`${folder}/**/*.{ts,tsx}`, { cwd: root }).flatMap((file) => {
    const source = read(file);
    const statements = source.matchAll(/^(?:import|export)\s[^;]*?from\s+"(\.[^"]+)"/gm);
    return [...statements].map(([, target]) => ({
      from: file,
      to: path.relative(root, path.resolve(root, path.dirname(file), target as string)),
    }));
  });
}

function folderOf(file: string): string {
  const [first = "", second = "", ...rest] = file.split(path.sep);
  if (first === "web") return `web/${second}`;
  return first === "src" && rest.length > 0 ? `src/${second}` : first;
}

test("every folder of the code is known here", () => {
  const folders = globSync("src/*/", { cwd: root }).map((folder) => path.join(folder));
  expect(folders.sort()).toEqual(
    Object.keys(MAY_IMPORT)
      .filter((folder) => folder.startsWith("src/"))
      .sort(),
  );
});

test.each(Object.entries(MAY_IMPORT))("%s imports only from itself and from %s", (folder, allowed) => {
  const imports = importsOf(folder);
  expect(imports.length).toBeGreaterThan(0);
  expect(imports.filter(({ to }) => ![folder, ...allowed.split(" ")].includes(folderOf(to)))).toEqual([]);
});

/** The circles of what files of some folders import, each by its number of nodes and the shortest circle. */
function circlesOf(folders: readonly string[], nodeOf: (file: string) => string): string[] {
  const graph = new Map<string, Set<string>>();
  for (const { from, to } of folders.flatMap(importsOf)) {
    const [node, target] = [nodeOf(from), nodeOf(to)];
    if (node !== target || from === to) graph.getOrInsertComputed(node, () => new Set()).add(target);
  }
  return circles(graph).map(({ nodes, shortest }) => `${nodes.length}: ${shortest}`);
}

test("no files import each other, not even by way of others", () => {
  expect(circlesOf(["src", "workflows", "web/src"], (file) => file)).toEqual([]);
});

/** A folder in a folder of `src`, or a folder of `src` with the files in it. */
function moduleOf(file: string): string {
  const [first = "", second = "", ...rest] = file.split(path.sep);
  return first !== "src" || rest.length < 2 ? folderOf(file) : `src/${second}/${rest[0]}`;
}

test("no modules import each other, not even by way of others", () => {
  expect(circlesOf(["src", "workflows"], moduleOf)).toEqual([]);
});

test("a module with a door is imported by its door only, which has at most 40 lines", () => {
  const doors = globSync("src/**/index.ts", { cwd: root });
  expect(doors.length).toBeGreaterThan(0);
  const imports = ["src", "workflows", "demo", "bench"].flatMap(importsOf);
  const isWithin = (file: string, door: string) => file.startsWith(`${path.dirname(door)}${path.sep}`);
  for (const door of doors) {
    const around = imports.filter(
      ({ from, to }) => isWithin(to, door) && !isWithin(from, door) && to !== door,
    );
    expect(around).toEqual([]);
    expect(read(door).trim().split("\n").length).toBeLessThanOrEqual(40);
  }
});

test("workflows import nothing but Temporal's packages, themselves and types", () => {
  for (const file of globSync("workflows/**/*.ts", { cwd: root })) {
    const source = read(file);
    const packages = [...source.matchAll(/^import\s+(?!type\s)[^;]*?from\s+"([^".][^"]*)";$/gm)];
    for (const [, name] of packages) expect(name).toMatch(/^@temporalio\/(workflow|common)$/);
  }
});
