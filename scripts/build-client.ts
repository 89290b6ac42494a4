import { spawnSync } from "node:child_process";
import { copyFileSync, cpSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** Assembles the client package: JavaScript, declarations, proto files and licence. */
function main(): number {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const dist = path.join(root, "clients/dist");
  const proto = path.join(root, "clients/proto");
  for (const made of [dist, proto]) rmSync(made, { recursive: true, force: true });
  const { status, error } = spawnSync("tsc", ["--project", "clients"], {
    cwd: root,
    stdio: "inherit",
    shell: process.platform === "win32",
  });
  if (status !== 0) {
    console.error(`tsc failed${error ? `: ${error.message}` : ""}`);
    return 1;
  }
  // The compiler rewrites import paths only in JavaScript, but the package contains no .ts files.
  for (const name of globSync("**/*.d.ts", { cwd: dist })) {
    const file = path.join(dist, name);
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace(/(from "\.[^"]+)\.ts"/g, '$1.js"'));
  }
  cpSync(path.join(root, "proto"), proto, { recursive: true });
  for (const name of ["LICENSE", "NOTICE"])
    copyFileSync(path.join(root, name), path.join(root, "clients", name));
  console.log("the client package is built; `npm pack ./clients` packs it");
  return 0;
}

if (import.meta.main) process.exitCode = main();
