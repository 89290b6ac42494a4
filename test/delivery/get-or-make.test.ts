import { expect, test } from "vitest";
import { getOrMake } from "../../src/delivery/get-or-make.ts";

test("a value is made once while it is cached, and the oldest of too many is evicted", () => {
  const made: string[] = [];
  const values = new Map<string, number>();
  for (const key of ["1", "2", "3", "4", "4", "1"]) getOrMake(values, key, 3, () => made.push(key));
  expect([values.size, made]).toEqual([3, ["1", "2", "3", "4", "1"]]);
});
