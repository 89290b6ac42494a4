import { expect, test } from "vitest";
import { clampToGranted, readGranted } from "../../../src/delivery/limits/process-limits.ts";

const MIB = 2 ** 20;
/** The limits where the system grants so many files and bytes of memory, of which some files are in use. */
const clamped = (files?: number, memory?: number, used = 0) =>
  clampToGranted({ maxInFlight: 4_000, memoryBytes: 64 * MIB }, { files, memory }, used);

test("the limits stay as configured where the system grants enough", () => {
  const expected = { maxInFlight: 4_000, memoryBytes: 64 * MIB, warnings: [] };
  expect(clamped(1_048_576, undefined, 10_000)).toEqual(expected);
});

test("low limits of files and memory lower the requests in flight and the payloads held, and warnings say how to raise them", () => {
  const ofFiles = clamped(1_024);
  expect(ofFiles.maxInFlight).toBe(512);
  expect(ofFiles.warnings).toEqual([
    expect.stringMatching(/may open only 1024 files; raise that limit to 5200 \(ulimit -n/),
  ]);
  const ofMemory = clamped(undefined, 256 * MIB);
  expect(ofMemory.memoryBytes).toBe(5.375 * MIB);
  // At 160 KiB each, beside 170 MiB and three times the payloads.
  expect(ofMemory.maxInFlight).toBe(447);
  expect(ofMemory.warnings).toEqual([expect.stringMatching(/only 256 MiB of memory; raise that limit/)]);
  expect(clamped(10, 100 * MIB, 10_000)).toMatchObject({ maxInFlight: 16, memoryBytes: MIB });
});

test.runIf(process.platform === "linux")("the file limit of the process is read", () => {
  expect(readGranted(1).files).toBeGreaterThan(0);
});
