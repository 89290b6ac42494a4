import { execFile, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** What the examples in Python need, as docs/clients.md names them, and what the generated types of receivers need. */
const PYTHON_PACKAGES =
  "grpcio==1.85.1 grpcio-tools==1.85.1 grpcio-status==1.85.1 googleapis-common-protos==1.76.0 pydantic==2.14.4 standardwebhooks==1.1.0".split(
    " ",
  );

const CACHE = fileURLToPath(new URL("../../.cache/clients", import.meta.url));

/** Whether a program is on this machine. */
export function has(program: string, ...args: string[]): boolean {
  return spawnSync(program, args, { stdio: "ignore" }).status === 0;
}

/** The folder of a Python with the packages, from PyPI. Made once per version of the packages. */
export async function pythonFolder(): Promise<string> {
  const venv = path.join(CACHE, `python ${PYTHON_PACKAGES.join(" ")}`.replaceAll(/[ =]+/g, "-"));
  if (!existsSync(venv)) {
    const made = `${venv}.tmp`;
    await rm(made, { recursive: true, force: true });
    const run = promisify(execFile);
    await run("python3", ["-m", "venv", made]);
    await run(path.join(made, "bin/python3"), ["-m", "pip", "install", "--quiet", ...PYTHON_PACKAGES]);
    await rename(made, venv);
  }
  return path.join(venv, "bin");
}

/** The environment of Go's commands: programs that the examples install stay in the project. */
export const GO_ENVIRONMENT = { GOBIN: path.join(CACHE, "go/bin"), GOFLAGS: "-modcacherw" };

/** The minor version of the installed Go, such as 26 of 1.26; 0 if there is none. */
export function goMinorVersion(): number {
  const { stdout } = spawnSync("go", ["version"], { encoding: "utf8" });
  return Number(/go1\.(\d+)/.exec(stdout ?? "")?.[1] ?? 0);
}
