import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cp, mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";

const project = fileURLToPath(new URL("../..", import.meta.url));
/** What the service runs from, without what `npm run build` makes. */
const PARTS = ["package.json", "src", "gen", "proto", "workflows"];

let root: string;
beforeAll(async () => {
  root = await mkdtemp(path.join(tmpdir(), "webhook-not-built-"));
  for (const part of PARTS) {
    await cp(path.join(project, part), path.join(root, part), {
      recursive: true,
      filter: (file) => path.basename(file) !== "dist",
    });
  }
  await symlink(path.join(project, "node_modules"), path.join(root, "node_modules"), "dir");
});
afterAll(() => rm(root, { recursive: true, force: true }));

test.each([
  ["all", {}],
  [
    "worker",
    {
      SECRET_KEY: randomBytes(32).toString("base64"),
      // It does not connect before.
      DATABASE_URL: "postgres://127.0.0.1:1/none",
      TEMPORAL_ADDRESS: "127.0.0.1:1",
    },
  ],
])(
  "role %s whose workflows are not built ends at once, and says how to build them",
  async (role, addresses) => {
    const dataDir = path.join(root, ".data");
    const run = promisify(execFile)(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", "src/main.ts"],
      {
        cwd: root,
        env: { ...process.env, ...addresses, ROLE: role, DATA_DIR: dataDir, HTTP_PORT: "0", GRPC_PORT: "0" },
      },
    );
    await expect(run).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining("the workflows are not built; run `npm run build`"),
    });
    // Before any embedded server has started.
    expect(await readdir(root)).not.toContain(".data");
  },
);
