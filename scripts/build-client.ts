import { spawnSync } from "node:child_process";
import { globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** Compiles the client package: JavaScript and declarations into clients/dist. */
function main(): number {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const dist = path.join(root, "clients/dist");
  rmSync(dist, { recursive: true, force: true });
  const { status, error } = spawnSync("tsc", ["--project", "clients"], {
    cwd: root,
    stdio: "inherit",
    shell: process.platform === "win32",
  });
  if (status !== 0) {
    console.error(`tsc failed${error ? `: ${error.message}` : ""}`);
    return 1;
  }
  // The compiler rewrites the paths of imports in JavaScript only; there are no .ts files where it is installed.
  for (const name of globSync("**/*.d.ts", { cwd: dist })) {
    const file = path.join(dist, name);
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace(/(from "\.[^"]+)\.ts"/g, '$1.js"'));
  }
  console.log("clients/dist is built; `npm pack ./clients` packs it");
  return 0;
}

if (import.meta.main) process.exitCode = main();
