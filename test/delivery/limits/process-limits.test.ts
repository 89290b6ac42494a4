import { expect, test } from "vitest";
import { clampToGranted, readGranted } from "../../../src/delivery/limits/process-limits.ts";

const MIB = 2 ** 20;
const wanted = { maxInFlight: 4_000, memoryBytes: 64 * MIB };

test("the limits stay as configured where the system grants enough", () => {
  const limits = clampToGranted(wanted, { files: 1_048_576, memory: undefined }, 10_000);
  expect(limits).toEqual({ ...wanted, warnings: [] });
});

test("a low file limit lowers the requests in flight, and the warning says how to raise it", () => {
  const { maxInFlight, warnings } = clampToGranted(wanted, { files: 1_024, memory: undefined }, 0);
  expect(maxInFlight).toBe(512);
  expect(warnings).toEqual([
    expect.stringMatching(/may open only 1024 files; raise that limit to 5200 \(ulimit -n/),
  ]);
});

test("a container's memory lowers the requests in flight and the payloads held", () => {
  const { maxInFlight, memoryBytes, warnings } = clampToGranted(
    wanted,
    { files: undefined, memory: 256 * MIB },
    0,
  );
  expect(memoryBytes).toBe(5.375 * MIB);
  expect(maxInFlight).toBeGreaterThan(100);
  expect(maxInFlight).toBeLessThan(500);
  expect(warnings).toEqual([expect.stringMatching(/may use only 256 MiB of memory; raise that limit/)]);
});

test("something is in flight however little the system grants", () => {
  const { maxInFlight, memoryBytes } = clampToGranted(wanted, { files: 10, memory: 100 * MIB }, 10_000);
  expect(maxInFlight).toBe(16);
  expect(memoryBytes).toBe(MIB);
});

test.runIf(process.platform === "linux")("the file limit of the process is read", () => {
  expect(readGranted(1).files).toBeGreaterThan(0);
});
