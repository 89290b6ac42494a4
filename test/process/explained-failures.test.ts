import { spawnSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { temporaryFolder } from "../embedded/support.ts";
import { part } from "../support/parts.ts";

await Promise.all([part("workflows"), part("page")]);

const root = fileURLToPath(new URL("../..", import.meta.url));
const PROGRAMS = [
  ["npm start", "src/main.ts", "Startup failed"],
  ["npm run demo", "demo/main.ts", "The demo failed"],
  ["npm run admin-key", "src/admin-key.ts", "Creating a key failed"],
] as const;

function runWith(file: string, options: string[], environment: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", file, ...options],
    { cwd: root, encoding: "utf8", env: { PATH: process.env.PATH, ...environment } },
  );
  return { status, stdout, stderr };
}

function run(file: string, environment: Record<string, string>) {
  const { status, stderr } = runWith(file, [], environment);
  return { status, stderr };
}

test("npm run demo says which setting cannot be used, and ends with 1", () => {
  expect(run("demo/main.ts", { LOG_LEVEL: "no" })).toEqual({
    status: 1,
    stderr: expect.stringMatching(/^Invalid configuration:\nLOG_LEVEL: .*"no"/),
  });
});

test.each(PROGRAMS)(
  "%s says in words why it cannot go on, without the place in its code",
  async (_command, file, words) => {
    const taken = path.join(await temporaryFolder(), "a-file");
    await writeFile(taken, "");
    const { status, stderr } = run(file, { DATA_DIR: taken });
    expect([status, stderr]).toEqual([1, expect.stringMatching(new RegExp(`^${words}: .*a-file`))]);
    expect(stderr).not.toMatch(/^ +at /m);
  },
);

test.each([
  ["npm run demo", "demo/main.ts", "The demo failed"],
  ["npm run admin-key", "src/admin-key.ts", "Creating a key failed"],
])(
  "%s explains itself with --help, and refuses other options before it does anything",
  (command, file, words) => {
    expect(runWith(file, ["--help"])).toEqual({
      status: 0,
      stdout: expect.stringContaining(command),
      stderr: "",
    });
    const { status, stdout, stderr } = runWith(file, ["--foo"]);
    expect([status, stdout, stderr]).toEqual([
      1,
      "",
      expect.stringContaining(`${words}: Unknown option '--foo'`),
    ]);
    expect(stderr).not.toMatch(/^ +at /m);
  },
);
