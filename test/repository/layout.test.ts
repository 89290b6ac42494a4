import { globSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { circles } from "./circles.ts";
import { read, root } from "./project.ts";

/**
 * The modules by level: folders of `src`, and those in `src/lib`. A module imports only from lower levels, and none from its own. The
 * workflows and the generated code of the proto files are at the bottom. `commands` are the files of `src` itself.
 */
const LEVELS: readonly string[] = [
  "gen workflows package.json lib/pg lib/process",
  "contract lib/dev-servers lib/egress",
  "config filters schema",
  "metrics temporal",
  "calls",
  "audit",
  "keys",
  "webhooks",
  "queue",
  "events health stats",
  "log notices",
  "breakers replays",
  "delivery retention revocation",
  "api dispatch maintenance",
  "app",
  "commands",
];
/** What other folders may import. The settings page knows the contract; it calls the API like everybody else. */
const OTHERS: Record<string, string> = { "web/src": "contract gen" };

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

/** The module of a file. */
function moduleOf(file: string): string {
  const [first = "", second = "", third = "", ...rest] = file.split(path.sep);
  if (first === "web") return `web/${second}`;
  if (first !== "src") return first;
  if (third === "") return "commands";
  return second === "lib" && rest.length > 0 ? `lib/${third}` : second;
}

const levels = new Map(LEVELS.flatMap((modules, level) => modules.split(" ").map((name) => [name, level])));

test("every module of the code has a level", () => {
  const modules = globSync("{src,workflows}/**/*.ts", { cwd: root }).map(moduleOf);
  const others = ["gen", "package.json"];
  expect([...new Set(modules)].sort()).toEqual(
    [...levels.keys()].filter((name) => !others.includes(name)).sort(),
  );
});

const modules = new Map<string, Import[]>();
for (const each of ["src", "workflows", "web/src"].flatMap(importsOf))
  modules.getOrInsertComputed(moduleOf(each.from), () => []).push(each);

test.each([...modules.keys()].sort())("%s imports from lower levels only", (name) => {
  const isAllowed = (to: string) =>
    name in OTHERS
      ? OTHERS[name]?.split(" ").includes(to)
      : (levels.get(to) ?? Number.NaN) < (levels.get(name) ?? Number.NaN);
  const imports = (modules.get(name) ?? []).filter(({ to }) => moduleOf(to) !== name);
  expect(imports.filter(({ to }) => !isAllowed(moduleOf(to)))).toEqual([]);
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

/** A folder in a module, or a module with the files in it. */
function partOf(file: string): string {
  const inModule = file.split(path.sep).slice(moduleOf(file).startsWith("lib/") ? 3 : 2);
  return inModule.length < 2 ? moduleOf(file) : `${moduleOf(file)}/${inModule[0]}`;
}

test("no parts of modules import each other, not even by way of others", () => {
  expect(circlesOf(["src", "workflows"], partOf)).toEqual([]);
});

/** What has no door: the settings page bundles parts of the contract, and commands import of `app` what they start. */
const WITHOUT_DOOR = ["contract", "app", "commands"];
/**
 * Files that load as little as they can: a command before it handles signals, and a thread that is started again after each slow
 * filter.
 */
const LOAD_LITTLE = ["src/main.ts", "src/app/small-memory.ts", "src/filters/thread.ts"];

test("a module is imported by its doors only, which have at most 40 lines", () => {
  const doors = globSync("src/**/index.ts", { cwd: root });
  const withDoor = new Set(doors.map(moduleOf));
  const inSource = [...levels.keys()].filter((name) => !/^(gen|workflows|package\.json)$/.test(name));
  expect([...withDoor, ...WITHOUT_DOOR].sort()).toEqual(inSource.sort());
  const around = ["src", "workflows", "demo"]
    .flatMap(importsOf)
    .filter(({ from, to }) => withDoor.has(moduleOf(to)) && moduleOf(from) !== moduleOf(to))
    .filter(({ from, to }) => !doors.includes(to) && !LOAD_LITTLE.includes(from));
  expect(around).toEqual([]);
  for (const door of doors) expect(read(door).trim().split("\n").length).toBeLessThanOrEqual(40);
});

test("workflows import nothing but Temporal's packages, themselves and types", () => {
  for (const file of globSync("workflows/**/*.ts", { cwd: root })) {
    const source = read(file);
    const packages = [...source.matchAll(/^import\s+(?!type\s)[^;]*?from\s+"([^".][^"]*)";$/gm)];
    for (const [, name] of packages) expect(name).toMatch(/^@temporalio\/(workflow|common)$/);
  }
});
