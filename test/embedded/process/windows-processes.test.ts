import { expect, test } from "vitest";
import { readWindowsProcesses } from "../../../src/embedded/process/processes.ts";

test("a Windows command line with quotes around a path with spaces and umlauts contains the path's marker", () => {
  const data = "C:\\Users\\Jörg Doe\\.data\\postgres\\data";
  const lines = `4321 "C:\\Program Files\\pg\\postgres.exe" -D "${data}" -c port=5433\n4322 \n`;
  const [server, ...others] = readWindowsProcesses(`${Buffer.from(lines).toString("base64")}\r\n`);
  expect(server?.pid).toBe(4321);
  expect(server?.command).toContain(` -D ${data} -c `);
  expect(others).toEqual([]);
});
