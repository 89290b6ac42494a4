import path from "node:path";
import { expect, test } from "vitest";
import { differences } from "../../scripts/check-gen.ts";
import { newFolder } from "./project.ts";

test("a generated file that was edited, is missing or is left over is a difference, and the same file is none", () => {
  const expected = newFolder({ "v1/a_pb.ts": "a", "v1/b_pb.ts": "b", "v1/deep/c_pb.ts": "c" });
  const found = newFolder({ "v1/a_pb.ts": "edited", "v1/deep/c_pb.ts": "c", "old_pb.ts": "old" });
  expect(differences(expected, found)).toEqual([
    { file: path.join("v1", "a_pb.ts"), kind: "out of date" },
    { file: path.join("v1", "b_pb.ts"), kind: "missing" },
    { file: "old_pb.ts", kind: "left over" },
  ]);
});
