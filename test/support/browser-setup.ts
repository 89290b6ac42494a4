import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** What to start a Chromium from, or why there is none. */
    chromium: Chromium | { missing: string };
  }
}

/** A Chromium on this machine. */
export interface Chromium {
  path: string;
  /** Settings over this process's environment. */
  environment: Record<string, string>;
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const UNPACK = `const { default: chromium } = await import("@sparticuz/chromium");
  await chromium.executablePath();`;

/** Finds the run's browser: that of CHROMIUM_PATH, or the one that npm brought, unpacked once. */
export default async function setup(project: TestProject): Promise<void> {
  const given = process.env.CHROMIUM_PATH;
  if (given) {
    const found = existsSync(given);
    project.provide(
      "chromium",
      found ? { path: given, environment: {} } : { missing: `CHROMIUM_PATH is ${given}, where nothing is` },
    );
    return;
  }
  const chromium = await unpack().catch((error: unknown) => ({
    missing: `npm's @sparticuz/chromium could not be unpacked; set CHROMIUM_PATH to a Chromium. ${(error as Error).message}`,
  }));
  project.provide("chromium", chromium);
}

async function unpack(): Promise<Chromium> {
  const { devDependencies } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")) as {
    devDependencies: Record<string, string>;
  };
  const home = path.join(root, ".cache", `chromium-${devDependencies["@sparticuz/chromium"]}`);
  if (!existsSync(home)) {
    await mkdir(path.dirname(home), { recursive: true });
    const fresh = await mkdtemp(`${home}-`);
    try {
      // The package unpacks into the folder for temporary files, and takes what anybody may have put there for its own.
      await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", UNPACK], {
        cwd: root,
        env: { ...process.env, TMPDIR: fresh, TEMP: fresh, TMP: fresh },
      });
      await writeFile(path.join(fresh, "fonts.conf"), fontSettings(home));
      await rename(fresh, home).catch(async (error: unknown) => {
        // Another run was quicker.
        if (!existsSync(home)) throw error;
      });
    } finally {
      await rm(fresh, { recursive: true, force: true });
    }
  }
  return {
    path: path.join(home, "chromium"),
    environment: { FONTCONFIG_FILE: path.join(home, "fonts.conf") },
  };
}

/** The system's fonts, and those of the package for systems that have none. */
function fontSettings(home: string): string {
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>${path.join(home, "fonts")}</dir>
  <cachedir>${path.join(home, "font-cache")}</cachedir>
</fontconfig>
`;
}
