import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** A static check: its name and command. */
interface Check {
  name: string;
  command: string[];
  environment?: Record<string, string>;
}

const checks: Check[] = [
  { name: "style and lint (biome)", command: ["biome", "check"] },
  { name: "types (tsc)", command: ["tsc", "--noEmit"] },
  { name: "types of the settings page (tsc)", command: ["tsc", "--noEmit", "--project", "web"] },
  { name: "proto files (buf lint)", command: ["buf", "lint"] },
  { name: "proto files (buf format)", command: ["buf", "format", "--diff", "--exit-code", "proto"] },
  { name: "proto files break no client", command: [process.execPath, "scripts/check-breaking.ts"] },
  { name: "gen/ is fresh", command: [process.execPath, "scripts/check-gen.ts"] },
  {
    name: "gen/openapi.json is fresh",
    command: [process.execPath, "scripts/openapi-document.ts", "--check"],
  },
  {
    name: "docs/built-in-events.md is fresh",
    command: [process.execPath, "scripts/events-document.ts", "--check"],
  },
  {
    name: "docs/configuration.md is fresh",
    command: [process.execPath, "scripts/settings-document.ts", "--check"],
  },
  {
    name: "docs/security.md is fresh",
    command: [process.execPath, "scripts/security-document.ts", "--check"],
  },
  { name: "the dashboard is fresh", command: [process.execPath, "scripts/dashboard.ts", "--check"] },
  { name: "every rule of the contract has a test", command: [process.execPath, "scripts/check-contract.ts"] },
];

const compose: Check = {
  name: "docker-compose.yml",
  command: ["docker-compose", "config", "--quiet"],
  // Compose requires these variables to parse the file.
  environment: Object.fromEntries(
    ["SECRET_KEY", "ADMIN_KEY", "POSTGRES_PASSWORD", "TEMPORAL_POSTGRES_PASSWORD"].map((name) => [
      name,
      "checked-only",
    ]),
  ),
};

function run({ name, command: [program = "", ...args], environment = {} }: Check): boolean {
  console.log(`\n── ${name}`);
  const started = performance.now();
  const { status, error } = spawnSync(program, args, {
    cwd: fileURLToPath(new URL("..", import.meta.url)),
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, ...environment },
    shell: process.platform === "win32",
  });
  if (error) console.error(error.message);
  const took = ((performance.now() - started) / 1_000).toFixed(1);
  console.log(`${status === 0 ? "ok" : "FAILED"} (${took} s)`);
  return status === 0;
}

function isInstalled(program: string): boolean {
  return spawnSync(program, ["version"], { stdio: "ignore" }).status === 0;
}

const failed = checks.filter((check) => !run(check));
if (!isInstalled("docker-compose"))
  console.log(`\n── ${compose.name}\nskipped: docker-compose is not installed`);
else if (!run(compose)) failed.push(compose);

console.log(failed.length === 0 ? "\nall checks passed" : "\nfailed:");
for (const { name } of failed) console.log(`  ${name}`);
process.exitCode = failed.length === 0 ? 0 : 1;
