import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { differences } from "../../scripts/check-gen.ts";
import { newFolder } from "./project.ts";

function folderOf(files: Record<string, string>): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
  return folder;
}

test("generated files that are the same have no differences", () => {
  const files = { "v1/a_pb.ts": "a", "v1/deep/b_pb.ts": "b" };
  expect(differences(folderOf(files), folderOf(files))).toEqual([]);
});

test("a generated file that was edited, is missing or is left over is a difference", () => {
  const expected = folderOf({ "v1/a_pb.ts": "a", "v1/b_pb.ts": "b", "c_pb.ts": "c" });
  const found = folderOf({ "v1/a_pb.ts": "edited", "c_pb.ts": "c", "v1/old_pb.ts": "old" });
  expect(differences(expected, found)).toEqual([
    { file: path.join("v1", "a_pb.ts"), kind: "out of date" },
    { file: path.join("v1", "b_pb.ts"), kind: "missing" },
    { file: path.join("v1", "old_pb.ts"), kind: "left over" },
  ]);
});
