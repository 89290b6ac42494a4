import { mkdir, readdir, symlink } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../lib/dev-servers/support.ts";
import { ROOT, startProgram } from "../support/program.ts";

/** What the service runs from, without what `npm run build` makes. */
const PARTS = ["package.json", "src", "gen", "proto", "node_modules"];

test("a service whose workflows are not built ends at once, before any embedded server has started, and says how to build them", async () => {
  const root = await temporaryFolder();
  await mkdir(path.join(root, "workflows"));
  const links = [
    ...PARTS,
    ...(await readdir(path.join(ROOT, "workflows"))).map((file) => `workflows/${file}`),
  ];
  for (const each of links)
    if (!each.endsWith("/dist")) await symlink(path.join(ROOT, each), path.join(root, each));
  const command = [process.execPath, "--preserve-symlinks", "--preserve-symlinks-main", "src/main.ts"];
  const dataDir = path.join(root, ".data");
  const environment = { DATA_DIR: dataDir, HTTP_PORT: "0", GRPC_PORT: "0" };
  const service = startProgram(command, { cwd: root, environment });
  expect(await service.ended).toBe(1);
  expect(service.printed()).toContain("the workflows are not built; run `npm run build`");
  expect(await readdir(root)).not.toContain(".data");
});
