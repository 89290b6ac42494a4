import { execFile } from "node:child_process";
import { copyFile, readFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { newFolder, read, root } from "./project.ts";

/** What tests read of a CycloneDX document. */
interface Sbom {
  bomFormat: string;
  metadata: { component: { name: string; version: string } };
  components: { name: string; version: string; purl: string; hashes?: object[] }[];
}

test("npm run sbom lists every production dependency with its version and hash, and no other", async () => {
  const folder = newFolder();
  for (const file of ["package.json", "package-lock.json"])
    await copyFile(path.join(root, file), path.join(folder, file));
  const [script = ""] = packageJson.scripts.sbom.match(/scripts\/sbom\.ts$/) ?? [];
  await promisify(execFile)(process.execPath, [path.join(root, script)], { cwd: folder });
  const sbom = JSON.parse(await readFile(path.join(folder, "sbom.cdx.json"), "utf8")) as Sbom;

  expect(sbom.bomFormat).toBe("CycloneDX");
  expect(sbom.metadata.component).toMatchObject({ name: packageJson.name, version: packageJson.version });
  const lock = JSON.parse(read("package-lock.json")) as {
    packages: Record<string, { version: string; dev?: boolean; name?: string }>;
  };
  const installed = Object.entries(lock.packages)
    .filter(([place, { dev }]) => place !== "" && !dev)
    .map(([place, { name, version }]) => `${name ?? place.replace(/^.*node_modules\//, "")}@${version}`);
  const listed = sbom.components.map(({ purl }) => decodeURIComponent(purl.replace(/^pkg:npm\//, "")));
  expect([...new Set(listed)].sort()).toEqual([...new Set(installed)].sort());
  expect(listed.length).toBeGreaterThan(Object.keys(packageJson.dependencies).length);
  for (const { purl, hashes } of sbom.components) expect(hashes, purl).toHaveLength(1);
});
