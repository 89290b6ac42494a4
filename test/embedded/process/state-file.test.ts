import { mkdir, readdir } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { writeState } from "../../../src/embedded/process/state-file.ts";
import { temporaryFolder } from "../support.ts";

test("state that cannot be written leaves no draft behind", async () => {
  const folder = await temporaryFolder();
  // A folder cannot be replaced by a file.
  await mkdir(path.join(folder, "state.json"));
  await expect(writeState(path.join(folder, "state.json"), { pid: 1 })).rejects.toThrow();
  expect(await readdir(folder)).toEqual(["state.json"]);
});
