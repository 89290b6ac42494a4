import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { newFolder, read, root } from "./project.ts";

test("npm run sbom lists every production dependency with its version and hash, and no other", () => {
  const [manifest, lock] = [read("package.json"), read("package-lock.json")];
  const folder = newFolder({ "package.json": manifest, "package-lock.json": lock });
  const { name, version, dependencies, scripts } = JSON.parse(manifest);
  expect(scripts.sbom).toMatch(/ scripts\/sbom\.ts$/);
  execFileSync(process.execPath, [path.join(root, "scripts/sbom.ts")], { cwd: folder });
  const { bomFormat, metadata, components } = JSON.parse(
    readFileSync(path.join(folder, "sbom.cdx.json"), "utf8"),
  ) as { bomFormat: string; metadata: object; components: { purl: string; hashes?: object[] }[] };

  expect([bomFormat, metadata]).toMatchObject(["CycloneDX", { component: { name, version } }]);
  const packages: Record<string, { version: string; dev?: boolean; name?: string }> =
    JSON.parse(lock).packages;
  const installed = Object.entries(packages)
    .filter(([place, { dev }]) => place !== "" && !dev)
    .map(([place, one]) => `${one.name ?? place.replace(/^.*node_modules\//, "")}@${one.version}`);
  const listed = components.map(({ purl }) => decodeURIComponent(purl.replace(/^pkg:npm\//, "")));
  expect([...new Set(listed)].sort()).toEqual([...new Set(installed)].sort());
  expect(listed.length).toBeGreaterThan(Object.keys(dependencies).length);
  for (const { purl, hashes } of components) expect(hashes, purl).toHaveLength(1);
});
