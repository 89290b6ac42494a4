import { spawnSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** A difference between `gen/` and the generated files. */
export interface Difference {
  file: string;
  kind: "out of date" | "missing" | "left over";
}

/** Compares a folder with its expected content, byte by byte. */
export function differences(expected: string, found: string): Difference[] {
  const wanted = filesIn(expected);
  const present = new Set(filesIn(found));
  const result: Difference[] = [];
  for (const file of wanted) {
    if (!present.delete(file)) result.push({ file, kind: "missing" });
    else if (!readFileSync(path.join(expected, file)).equals(readFileSync(path.join(found, file)))) {
      result.push({ file, kind: "out of date" });
    }
  }
  for (const file of present) result.push({ file, kind: "left over" });
  return result;
}

function filesIn(folder: string): string[] {
  return globSync("**/*", { cwd: folder, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

function main(): number {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const temporary = mkdtempSync(path.join(os.tmpdir(), "generated-"));
  try {
    const { status, error } = spawnSync("buf", ["generate", "--output", temporary], {
      cwd: root,
      stdio: ["ignore", "inherit", "inherit"],
      shell: process.platform === "win32",
    });
    if (status !== 0) {
      console.error(`buf generate failed${error ? `: ${error.message}` : ""}`);
      return 1;
    }
    const found = differences(path.join(temporary, "gen"), path.join(root, "gen")).filter(
      // scripts/openapi-document.ts writes it.
      ({ file }) => file !== "openapi.json",
    );
    for (const { file, kind } of found) console.error(`gen/${file} is ${kind}`);
    if (found.length > 0) {
      console.error("gen/ is out of date. Run `npm run generate` and commit the result.");
      return 1;
    }
    console.log("gen/ is up to date");
    return 0;
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

if (import.meta.main) process.exitCode = main();
