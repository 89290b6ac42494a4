import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findSettingsPage } from "../../src/build/page-build.ts";
import { NONCE_PLACEHOLDER } from "../../src/contract/page-paths.ts";

const project = fileURLToPath(new URL("../..", import.meta.url));

/** A copy of what the page is built with, and a page of one line, so that a build takes a second. */
let root: string;
beforeAll(async () => {
  root = await mkdtemp(path.join(tmpdir(), "webhook-page-build-"));
  await mkdir(path.join(root, "web/src"), { recursive: true });
  for (const file of [
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "src/contract/page-paths.ts",
    "src/api/openapi/swagger-ui.ts",
    "web/index.html",
    "web/tsconfig.json",
    "web/vite.config.ts",
    "web/src/favicon.svg",
  ]) {
    await cp(path.join(project, file), path.join(root, file));
  }
  await symlink(path.join(project, "node_modules"), path.join(root, "node_modules"), "junction");
  await writeFile(path.join(root, "web/src/main.tsx"), says("first"));
});
afterAll(() => rm(root, { recursive: true, force: true }));

const says = (word: string) => `document.body.append(${JSON.stringify(word)});\n`;
const write = (text: string) => writeFile(path.join(root, "web/src/main.tsx"), text);

/** What starting a service does; answers the page's script, and what the person who starts it is told. */
async function start(): Promise<{ script: string | undefined; told: string[] }> {
  const told: string[] = [];
  const folder = await findSettingsPage((line) => told.push(line), root);
  if (folder === undefined) return { script: undefined, told };
  const page = await readFile(path.join(folder, "index.html"), "utf8");
  expect(page).toContain(`nonce="${NONCE_PLACEHOLDER}"`);
  const [, file = ""] = /src="(\/assets\/[^"]+\.js)"/.exec(page) ?? [];
  return { script: await readFile(path.join(folder, file), "utf8"), told };
}

describe("the settings page", () => {
  test("is built at the first start, which says so", async () => {
    const { script, told } = await start();
    expect(script).toContain("first");
    expect(told).toEqual(["building the settings page; this takes some 10 s"]);
  });

  test("is not built again while its sources stay what they are", async () => {
    await write(says("first"));
    expect((await start()).told).toEqual([]);
  });

  test("is built again when its sources have changed", async () => {
    await write(says("second"));
    const { script, told } = await start();
    expect(script).toContain("second");
    expect(told).toEqual(["building the settings page, whose sources have changed; this takes some 10 s"]);
  });

  test("is built once and for all when several start at the same moment", async () => {
    await write(says("third"));
    const started = await Promise.all([start(), start()]);
    for (const { script } of started) expect(script).toContain("third");
  });

  test("that cannot be built is told with its reason and with what to do, and stops nothing", async () => {
    await write("this is no TypeScript");
    const { script, told } = await start();
    expect(script).toBeUndefined();
    expect(told.join("\n")).toMatch(/could not be built: .*main\.tsx.*npm run build:web/s);
  });

  test("is served as it was built where there are no sources, as in an image", async () => {
    await write(says("built in"));
    await start();
    await rm(path.join(root, "web/src"), { recursive: true });
    const { script, told } = await start();
    expect(script).toContain("built in");
    expect(told).toEqual([]);
  });

  test("is missed aloud where there are neither sources nor a build", async () => {
    await rm(path.join(root, "web/dist"), { recursive: true });
    const { script, told } = await start();
    expect(script).toBeUndefined();
    expect(told).toEqual(["there is no settings page: this installation has neither web/dist nor web/src"]);
  });
});
