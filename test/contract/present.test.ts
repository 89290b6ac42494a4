import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { present, timestampOf } from "../../src/contract/present.ts";

test("only members with a value are present, also those that are empty", () => {
  const time = new Date();
  const members = {
    id: 0n,
    text: "",
    no: null,
    nothing: undefined,
    time: timestampOf(time),
    none: timestampOf(null),
  };
  expect(Object.entries(present(members))).toEqual([
    ["id", 0n],
    ["text", ""],
    ["time", timestampFromDate(time)],
  ]);
});
