import { spawnSync } from "node:child_process";
import { describe } from "vitest";

/** Options of `haproxy`, `runc` and others that print their version; most programs know `--version`. */
const VERSION: Record<string, string[]> = {
  caddy: ["version"],
  haproxy: ["-v"],
  helm: ["version"],
  kubeconform: ["-v"],
  nginx: ["-v"],
};

/** Whether a program is on PATH and runs. */
export const isInstalled = (program: string) =>
  spawnSync(program, VERSION[program] ?? ["--version"], { stdio: "ignore" }).status === 0;

/** Tests that need programs: skipped where one is missing, and the title says which. */
export function describeWith(programs: readonly string[], name: string, tests: () => void): void {
  const missing = programs.filter((program) => !isInstalled(program));
  if (missing.length === 0) describe(name, tests);
  else describe.skip(`${name} (skipped: not on PATH: ${missing.join(", ")})`, tests);
}
