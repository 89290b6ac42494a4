import { execFileSync, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { lstat, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findPostgresBinaries } from "../../../../src/lib/dev-servers/postgres/postgres-binaries.ts";
import { canReach, isRoot, NOBODY } from "../../../../src/lib/dev-servers/process/owner.ts";
import { recorded, silent, temporaryFolder } from "../support.ts";

/** A copy of the platform's package in a closed folder, as npm leaves it when install scripts were blocked. */
async function unhydratedPackage(): Promise<{ folder: string; link: string }> {
  const { postgres } = await findPostgresBinaries(null, silent);
  const installed = path.resolve(path.dirname(postgres), "../..");
  const folder = path.join(await temporaryFolder(0o700), "package");
  // Of links where the system lets this user make them.
  const copy = (how: string) => spawnSync("cp", [how, installed, folder], { stdio: "ignore" }).status === 0;
  if (!copy("-al")) {
    await rm(folder, { recursive: true, force: true });
    copy("-a");
  }
  const links = JSON.parse(await readFile(path.join(folder, "native/pg-symlinks.json"), "utf8")) as {
    target: string;
  }[];
  for (const { target } of links) await rm(path.join(folder, target));
  // A version of its own, by which the copy for other users is found.
  const manifest = path.join(folder, "package.json");
  const content = JSON.parse(await readFile(manifest, "utf8")) as object;
  await rm(manifest);
  await writeFile(manifest, JSON.stringify({ ...content, version: `0.0.0-${randomUUID()}` }));
  return { folder, link: path.join(folder, links[0]?.target ?? "") };
}

test("where install scripts were blocked, the library links are made at the first start", async () => {
  const { folder, link } = await unhydratedPackage();
  const { postgres } = await findPostgresBinaries(null, silent, folder);
  expect((await lstat(link)).isSymbolicLink()).toBe(true);
  expect(execFileSync(postgres, ["--version"], { encoding: "utf8" })).toContain("PostgreSQL");
});

test("where the links cannot be made or the package is missing, the error says what to do", async () => {
  const { folder } = await unhydratedPackage();
  await rm(path.join(folder, "native/lib"), { recursive: true });
  await expect(findPostgresBinaries(null, silent, folder)).rejects.toThrow(
    /is not usable[\s\S]*DATABASE_URL[\s\S]*--omit=optional[\s\S]*install scripts/,
  );
  await expect(findPostgresBinaries(null, silent, path.join(folder, "nowhere"))).rejects.toThrow(
    /DATABASE_URL[\s\S]*--omit=optional/,
  );
});

test("programs nobody could reach are copied once to where they can, by two starters at once too", async ({
  skip,
}) => {
  skip(!isRoot(), "only root copies them");
  const { folder } = await unhydratedPackage();
  const { lines, progress } = recorded();
  const [one, two] = await Promise.all([
    findPostgresBinaries(NOBODY, progress, folder),
    findPostgresBinaries(NOBODY, progress, folder),
  ]);
  const copy = path.resolve(path.dirname(one.postgres), "../..");
  onTestFinished(() => rm(copy, { recursive: true, force: true }));
  expect(two.postgres).toBe(one.postgres);
  expect(await canReach(NOBODY, one.postgres)).toBe(true);
  const version = execFileSync(one.postgres, ["--version"], { ...NOBODY, cwd: "/", encoding: "utf8" });
  expect(version).toContain("PostgreSQL");
  const told = lines.length;
  expect((await findPostgresBinaries(NOBODY, progress, folder)).postgres).toBe(one.postgres);
  expect(lines).toHaveLength(told);
});
