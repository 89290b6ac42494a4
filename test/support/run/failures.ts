import { copyFile, mkdir, readFile } from "node:fs/promises";
import path from "node:path";
import type { TestProject } from "vitest/node";

/** The commands of package.json by the modes of vitest.config.ts. */
const COMMANDS: Record<string, string> = {
  test: "npm test",
  all: "npm run test:all",
  full: "npm run faults",
  fuzz: "npm run fuzz",
  deploy: "npm run test:deploy",
};
/** The number of a log's last lines that are printed. */
const TAIL_LINES = 40;

/** The logs of the run's servers, by the names of their parts. */
export type Logs = ReadonlyMap<string, string>;

/**
 * Keeps the logs of the run's servers if a test failed.
 *
 * @returns lines that say how to repeat the failed files, and where the logs are; none if no test failed
 */
export async function failureLines({ vitest }: TestProject, logs: Logs): Promise<string[]> {
  const { root } = vitest.config;
  const failed = vitest.state.getTestModules().filter((module) => !module.ok());
  if (failed.length === 0) return [];
  const files = failed.map(({ moduleId }) => path.relative(root, moduleId).replaceAll(path.sep, "/"));
  const command = COMMANDS[vitest.vite.config.mode] ?? `npx vitest run --mode ${vitest.vite.config.mode}`;
  const results = path.join(root, "test/results");
  await mkdir(results, { recursive: true });
  const kept: string[] = [];
  for (const [name, log] of logs) {
    await copyFile(log, path.join(results, `${name}.log`));
    kept.push(`test/results/${name}.log`);
  }
  return [
    `To repeat the failed files: ${command} -- ${[...new Set(files)].join(" ")}`,
    ...(kept.length > 0 ? [`Logs of the run's servers: ${kept.join(", ")}`] : []),
  ];
}

/** Prints what a server tells of itself, and the end of its log when it has ended unexpectedly. */
export function teller(log: string): (line: string) => void {
  return (line) => {
    console.log(line);
    if (!line.includes("ended unexpectedly")) return;
    void readFile(log, "utf8").then((text) => {
      console.log(text.trimEnd().split("\n").slice(-TAIL_LINES).join("\n"));
    });
  };
}
