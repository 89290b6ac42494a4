import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/** What this script reads of package-lock.json. */
interface Lock {
  packages: Record<string, { dev?: boolean; devDependencies?: object | undefined }>;
}

/** The file that is written to the current folder. */
const FILE = "sbom.cdx.json";

/**
 * `npm run sbom`: writes an SBOM (CycloneDX 1.5) of the production dependencies as package-lock.json has them.
 *
 * `npm sbom --omit dev` leaves out production dependencies that development ones need too, so npm gets a project without
 * the latter.
 */
function writeSbom(project: string): void {
  const read = (file: string) => JSON.parse(readFileSync(path.join(project, file), "utf8"));
  const manifest = { ...read("package.json"), devDependencies: undefined };
  const lock = read("package-lock.json") as Lock;
  const packages = Object.fromEntries(Object.entries(lock.packages).filter(([, { dev }]) => !dev));
  packages[""] = { ...packages[""], devDependencies: undefined };
  const temporary = mkdtempSync(path.join(tmpdir(), "webhook-sbom-"));
  // npm names the SBOM's component after the folder.
  const folder = path.join(temporary, manifest.name);
  try {
    mkdirSync(folder);
    writeFileSync(path.join(folder, "package.json"), JSON.stringify(manifest));
    writeFileSync(path.join(folder, "package-lock.json"), JSON.stringify({ ...lock, packages }));
    const { status, stdout } = spawnSync("npm sbom --package-lock-only --sbom-format cyclonedx", {
      cwd: folder,
      encoding: "utf8",
      maxBuffer: 2 ** 26,
      shell: true,
      stdio: ["ignore", "pipe", "inherit"],
    });
    if (status !== 0) throw new Error(`npm sbom ended with ${status}; it needs npm 10 or later`);
    writeFileSync(path.join(project, FILE), stdout);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

writeSbom(process.cwd());
console.log(`wrote ${FILE}`);
