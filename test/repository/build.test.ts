import { globSync } from "node:fs";
import { mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { build, TARGETS } from "../../scripts/build.ts";
import { newFolder, root as project, read } from "./project.ts";

type Target = (typeof TARGETS)[keyof typeof TARGETS];

const FILES = Array.from({ length: 50 }, (_, n) => `${n}.js`);
/** A target with the sources and the folder of the page, whose build takes no time. */
const QUICK: Target = {
  ...TARGETS.PAGE,
  async build(_root, into) {
    await mkdir(into, { recursive: true });
    for (const file of FILES) await writeFile(path.join(into, file), "");
  },
};

/** A project with a page of one line; tells what the person who starts a build is told. */
function smallProject() {
  const root = newFolder({
    "package.json": '{ "type": "module" }',
    "package-lock.json": "",
    "src/contract/page-paths.ts": "",
    "web/index.html": '<script type="module" src="/src/main.tsx"></script>',
    "web/src/main.tsx": "document.title = 'first';",
  });
  return {
    root,
    write: (file: string, text: string) => writeFile(path.join(root, file), text),
    built: () => readdir(path.join(root, QUICK.folder)),
    async told(target: Target) {
      const lines: string[] = [];
      await build((line) => lines.push(line), [target], root);
      return lines;
    },
  };
}

test.each(["web/src/main.tsx", "src/contract/page-paths.ts", "package-lock.json"])(
  "a target is built when it was not, and again when %s has changed, which is told, and not while its sources stay what they are",
  async (file) => {
    const { told, write } = smallProject();
    expect(await told(QUICK)).toEqual(["building the settings page; this takes some 10 s"]);
    expect(await told(QUICK)).toEqual([]);
    await write(file, "changed");
    expect(await told(QUICK)).toEqual([
      "building the settings page, whose sources have changed; this takes some 10 s",
    ]);
  },
);

test("a page that cannot be built leaves the one before, and tells why", async () => {
  const { root, told, write, built } = smallProject();
  await symlink(path.join(project, "node_modules"), path.join(root, "node_modules"), "junction");
  await told(QUICK);
  await write("web/src/main.tsx", "this is no TypeScript");
  await expect(told(TARGETS.PAGE)).rejects.toThrow(/main\.tsx/);
  expect(await built()).toEqual(expect.arrayContaining(FILES));
});

test("the sources of the page are all files that it imports", async () => {
  const sources = new Set(globSync(TARGETS.PAGE.sources, { cwd: project }));
  const reached = globSync(["web/vite.config.ts", "web/src/**/*.{ts,tsx}"], { cwd: project });
  const imported = new Set(reached);
  for (const file of reached) {
    for (const [, target = ""] of read(file).matchAll(
      /^(?:import|export)\s(?:[^;]*?from\s+)?"(\.[^"]+)"/gm,
    )) {
      const found = path.join(path.dirname(file), target);
      if (!imported.has(found) && /\.tsx?$/.test(found)) reached.push(found);
      imported.add(found);
    }
  }
  expect([...imported]).toContain(path.join("src", "contract", "catalogue.ts"));
  expect([...imported].filter((file) => !sources.has(file))).toEqual([]);
});

test("what is built is whole after many builds that end at the same moment", async () => {
  const { root, told, write, built } = smallProject();
  for (let round = 0; round < 8; round += 1) {
    await write("web/src/main.tsx", `round ${round}`);
    await Promise.all(Array.from({ length: 6 }, () => told(QUICK)));
    expect(await built()).toEqual(expect.arrayContaining(FILES));
  }
  expect(await readdir(path.join(root, ".cache"))).toEqual([]);
});
