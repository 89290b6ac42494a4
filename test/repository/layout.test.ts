import { globSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { linesOfFolder } from "../../scripts/code-lines.ts";
import { circles } from "./circles.ts";
import { read, root } from "./project.ts";

/**
 * The modules by level: folders of `src`, and those in `src/lib`. A module imports only from lower levels, and none from its own. The
 * workflows and the generated code of the proto files are at the bottom. `commands` are the files of `src` itself.
 */
const LEVELS: readonly string[] = [
  "gen workflows package.json lib/cel lib/pg lib/process",
  "contract lib/dev-servers lib/egress",
  "config schema",
  "metrics temporal",
  "calls",
  "audit",
  "customers event-types",
  "filters keys",
  "webhooks",
  "queue",
  "events stats",
  "health",
  "incidents",
  "log notices",
  "breakers",
  "delivery",
  // Only `app`, which puts all together, knows these.
  "api dispatch maintenance replays retention revocation",
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

/**
 * What writes to tables of other modules: statements that are one act, which several statements would make slower or less safe. The
 * writers of `settings` each have names of their own.
 */
const ALSO_WRITTEN_BY: Record<string, { owner: string; others: string }> = {
  // Publishing stores an event with its deliveries by one statement; so do notices and backfills.
  events: { owner: "events", others: "notices replays" },
  idempotency_keys: { owner: "events", others: "notices" },
  queue: { owner: "queue", others: "events log notices replays" },
  // Sending again moves an ended delivery back, with its attempts, counts and the webhook's test delivery.
  deliveries: { owner: "queue", others: "log" },
  attempts: { owner: "queue", others: "log" },
  rollup_deltas: { owner: "queue", others: "log maintenance" },
  // Claims spend a rate and a test delivery, and what ends one frees the webhook or its breaker.
  endpoints: { owner: "webhooks", others: "queue" },
  webhooks: { owner: "webhooks", others: "breakers events log queue" },
  webhook_breakers: { owner: "breakers", others: "queue webhooks" },
  settings: { owner: "schema", others: "events notices retention stats" },
};

test("a table has one writer, or its other writers are listed here", () => {
  const migrations = globSync("src/schema/migrations/*.ts", { cwd: root });
  const tables = new Set(
    migrations.flatMap((file) => [...read(file).matchAll(/create table ([a-z_]+)/g)].map(([, name]) => name)),
  );
  expect(tables.size).toBeGreaterThan(20);
  const writers = new Map<string, Set<string>>();
  for (const file of globSync("src/**/*.ts", { cwd: root }).filter((each) => !migrations.includes(each))) {
    const source = read(file);
    const written = [
      ...source.matchAll(/\b(?:insert into|update|delete from)\s+([a-z_]+)\b/g),
      ...source.matchAll(/\b(?:db|trx)\("([a-z_]+)"\)[^;]{0,300}?\.(?:insert|update|delete)\(/g),
    ];
    for (const [, table = ""] of written)
      if (tables.has(table)) writers.getOrInsertComputed(table, () => new Set()).add(moduleOf(file));
  }
  const others = [...writers].map(([table, modules]) => {
    const owner = ALSO_WRITTEN_BY[table]?.owner ?? [...modules][0];
    return [
      table,
      [...modules]
        .filter((name) => name !== owner)
        .sort()
        .join(" "),
    ];
  });
  const listed = Object.entries(ALSO_WRITTEN_BY).map(([table, each]) => [table, each.others]);
  expect(Object.fromEntries(others.filter(([, names]) => names !== ""))).toEqual(Object.fromEntries(listed));
});

/**
 * SQL text of a module that others put into their statements. A comment at the text says why it is no function. The schema's text about
 * ids and that of the caller's scope are for all.
 */
const SQL_FOR_OTHERS = [
  "breakers NOTE_FOR_BREAKERS",
  "health NOTE_ATTEMPTS",
  "log hasDelivery",
  "queue WORKERS",
  "queue isFree",
  "queue ofWebhook",
  "stats failedAttempts",
  "stats foldInto",
];

test("no module has SQL text for others, except what is listed here", () => {
  const texts = globSync("src/**/*.ts", {
    cwd: root,
    exclude: ["src/{lib,contract,calls,schema}/**"],
  }).flatMap((file) =>
    [...read(file).matchAll(/^export const (\w+) = (?:\([^;]*?\) =>\s+)?[`"]([^;]*)/gm)]
      .filter(([, , text = ""]) =>
        /\b(select|coalesce|exists|array)\b|\) >?= \(|\.\w+ (is|and|[<>=]+) /.test(text),
      )
      .map(([, name]) => `${moduleOf(file)} ${name}`),
  );
  const inDoor = (text: string) => {
    const [module, name] = text.split(" ");
    return new RegExp(`\\b${name}\\b`).test(read(`src/${module}/index.ts`));
  };
  expect(texts.filter(inDoor).sort()).toEqual(SQL_FOR_OTHERS);
});

/** The maximum of lines of code of `src` and `workflows`. A change that raises it says which promise needs the lines. */
const MAX_CODE_LINES = 38_890;

test("the service has no more lines of code than it had", () => {
  const lines = linesOfFolder(root, "src") + linesOfFolder(root, "workflows");
  expect(lines).toBeLessThanOrEqual(MAX_CODE_LINES);
});

test("workflows import nothing but Temporal's packages, themselves and types", () => {
  for (const file of globSync("workflows/**/*.ts", { cwd: root })) {
    const source = read(file);
    const packages = [...source.matchAll(/^import\s+(?!type\s)[^;]*?from\s+"([^".][^"]*)";$/gm)];
    for (const [, name] of packages) expect(name).toMatch(/^@temporalio\/(workflow|common)$/);
  }
});
