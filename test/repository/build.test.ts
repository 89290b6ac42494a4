import { globSync } from "node:fs";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { build, TARGETS } from "../../scripts/build.ts";
import { NONCE_PLACEHOLDER } from "../../src/contract/page-paths.ts";
import { root as project, read } from "./project.ts";

type Target = (typeof TARGETS)[keyof typeof TARGETS];

/** One small file of the documentation page's: compressing the others takes seconds. */
const SWAGGER_UI = `import path from "node:path";
export const SWAGGER_UI_FOLDER = path.resolve("node_modules/swagger-ui-dist");
export const SWAGGER_UI_FILES = ["favicon-32x32.png"];
`;

/** A copy of what the page and the workflows are built with, and a page of one line, so that a build takes a second. */
let root: string;
beforeAll(async () => {
  root = await mkdtemp(path.join(tmpdir(), "webhook-build-"));
  await mkdir(path.join(root, "web/src"), { recursive: true });
  for (const file of [
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "src/contract/page-paths.ts",
    "web/index.html",
    "web/tsconfig.json",
    "web/vite.config.ts",
    "web/src/favicon.svg",
  ]) {
    await cp(path.join(project, file), path.join(root, file));
  }
  await mkdir(path.join(root, "src/api/openapi"), { recursive: true });
  await writeFile(path.join(root, "src/api/openapi/swagger-ui.ts"), SWAGGER_UI);
  await symlink(path.join(project, "node_modules"), path.join(root, "node_modules"), "junction");
  await mkdir(path.join(root, "workflows"));
  await writeFile(path.join(root, "workflows/index.ts"), workflow("first"));
  await write(says("first"));
});
afterAll(() => rm(root, { recursive: true, force: true }));

const says = (word: string) => `document.body.append(${JSON.stringify(word)});\n`;
const write = (text: string) => writeFile(path.join(root, "web/src/main.tsx"), text);
const workflow = (word: string) => `export async function say() { return ${JSON.stringify(word)}; }\n`;

/** Builds one target; answers what the person who starts it is told. */
async function told(target: Target): Promise<string[]> {
  const lines: string[] = [];
  await build((line) => lines.push(line), [target], root);
  return lines;
}

/** A target with the sources of the page, whose build takes no time. */
const QUICK: Target = {
  ...TARGETS.PAGE,
  folder: "web/quick",
  async build(_root, into) {
    await mkdir(into, { recursive: true });
    for (const file of FILES) await writeFile(path.join(into, file), "");
  },
};
const FILES = Array.from({ length: 50 }, (_, n) => `${n}.js`);

/** The built page's script. */
async function script(): Promise<string> {
  const page = await readFile(path.join(root, "web/dist/index.html"), "utf8");
  expect(page).toContain(`nonce="${NONCE_PLACEHOLDER}"`);
  const [, file = ""] = /src="(\/assets\/[^"]+\.js)"/.exec(page) ?? [];
  return readFile(path.join(root, "web/dist", file), "utf8");
}

test("the settings page is built when it was not, which is told; one that cannot be built leaves the one before, and tells why", async () => {
  expect(await told(TARGETS.PAGE)).toEqual(["building the settings page; this takes some 10 s"]);
  expect(await script()).toContain("first");
  expect(await told(TARGETS.PAGE)).toEqual([]);
  await write("this is no TypeScript");
  await expect(told(TARGETS.PAGE)).rejects.toThrow(/main\.tsx/);
  expect(await script()).toContain("first");
});

test("the workflows are bundled once, and again when they have changed", async () => {
  const bundle = () => readFile(path.join(root, "workflows/dist/index.js"), "utf8");
  expect(await told(TARGETS.WORKFLOWS)).toEqual(["building the workflows; this takes some 3 s"]);
  expect(await bundle()).toContain("first");
  expect(await told(TARGETS.WORKFLOWS)).toEqual([]);
  await writeFile(path.join(root, "workflows/index.ts"), workflow("second"));
  expect(await told(TARGETS.WORKFLOWS)).toHaveLength(1);
  expect(await bundle()).toContain("second");
});

test.each(["web/src/main.tsx", "src/contract/page-paths.ts", "package-lock.json"])(
  "a target is built again when %s has changed, which is told, and not while its sources stay what they are",
  async (file) => {
    await told(QUICK);
    await writeFile(path.join(root, file), `${await readFile(path.join(root, file), "utf8")}\n`);
    expect(await told(QUICK)).toEqual([
      "building the settings page, whose sources have changed; this takes some 10 s",
    ]);
    expect(await told(QUICK)).toEqual([]);
  },
);

test("the sources of the page are all files that it imports", async () => {
  const sources = new Set(globSync(TARGETS.PAGE.sources, { cwd: project }));
  const reached = globSync(["web/vite.config.ts", "web/src/**/*.{ts,tsx}"], { cwd: project });
  const imported = new Set(reached);
  for (const file of reached) {
    const text = read(file);
    for (const [, target = ""] of text.matchAll(/^(?:import|export)\s(?:[^;]*?from\s+)?"(\.[^"]+)"/gm)) {
      const found = path.join(path.dirname(file), target);
      if (!imported.has(found) && /\.tsx?$/.test(found)) reached.push(found);
      imported.add(found);
    }
  }
  const outside = [...imported].filter((file) => !file.startsWith(`web${path.sep}`));
  expect(outside).toContain(path.join("src", "contract", "catalogue.ts"));
  expect([...imported].filter((file) => !sources.has(file))).toEqual([]);
});

test("what is built is whole after many builds that end at the same moment", async () => {
  for (let round = 0; round < 8; round += 1) {
    await write(says(`round ${round}`));
    await Promise.all(Array.from({ length: 6 }, () => told(QUICK)));
    expect(await readdir(path.join(root, QUICK.folder))).toEqual(expect.arrayContaining(FILES));
  }
  expect(await readdir(path.join(root, ".cache"))).toEqual([]);
});
