import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** A Chromium on this machine. */
export interface Chromium {
  path: string;
  /** Settings over this process's environment. */
  environment: Record<string, string>;
}

const root = fileURLToPath(new URL("../../..", import.meta.url));
const UNPACK = `const { default: chromium } = await import("@sparticuz/chromium");
  await chromium.executablePath();`;

/** Finds the run's browser: that of CHROMIUM_PATH, or the one that npm brought, unpacked once. Else says why there is none. */
export async function findChromium(): Promise<Chromium | { missing: string }> {
  const given = process.env.CHROMIUM_PATH;
  if (given)
    return existsSync(given)
      ? { path: given, environment: {} }
      : { missing: `CHROMIUM_PATH is ${given}, which does not exist` };
  return unpack().catch((error: unknown) => ({
    missing: `npm's @sparticuz/chromium could not be unpacked; set CHROMIUM_PATH to a Chromium. ${(error as Error).message}`,
  }));
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
