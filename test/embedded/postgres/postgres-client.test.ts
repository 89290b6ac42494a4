import path from "node:path";
import { expect, test } from "vitest";
import { isDataFolder } from "../../../src/embedded/postgres/postgres-client.ts";

test("a PostgreSQL on Windows, which reports its folder with slashes, is recognized by it", () => {
  const data = "C:\\Users\\Jane Doe\\.data\\postgres\\data";
  expect(isDataFolder("C:/Users/Jane Doe/.data/postgres/data", data, path.win32)).toBe(true);
  expect(isDataFolder("C:/Users/John Doe/.data/postgres/data", data, path.win32)).toBe(false);
});
