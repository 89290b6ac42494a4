import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

/** The folder of the project, with a slash at its end. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** The text of a file of the project. */
export const read = (file: string): string => readFileSync(path.join(root, file), "utf8");

/** A new folder with these files, by their paths, which is removed after the test. */
export function newFolder(files: Record<string, string> = {}): string {
  const folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), "webhook-repository-")));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
  return folder;
}
