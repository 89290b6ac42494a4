import { expect, test } from "vitest";
import { readWindowsProcesses } from "../../../src/embedded/process/processes.ts";

test("a Windows command line with quotes around a path with spaces contains the path's marker", () => {
  const data = "C:\\Users\\Jane Doe\\.data\\postgres\\data";
  const [server, ...others] = readWindowsProcesses(
    `4321 "C:\\Program Files\\pg\\postgres.exe" -D "${data}" -c port=5433\r\n4322 \r\n\r\n`,
  );
  expect(server?.pid).toBe(4321);
  expect(server?.command).toContain(` -D ${data} -c `);
  expect(others).toEqual([]);
});
