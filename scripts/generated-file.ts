import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/**
 * Writes a generated file, or with the argument --check says whether it is up to date.
 *
 * @param file its path in the project
 * @returns the exit code
 */
export function writeOrCheck(file: string, text: string): number {
  const place = path.join(ROOT, file);
  if (!process.argv.includes("--check")) {
    mkdirSync(path.dirname(place), { recursive: true });
    writeFileSync(place, text);
    return 0;
  }
  if (existsSync(place) && readFileSync(place, "utf8") === text) {
    console.log(`${file} is up to date`);
    return 0;
  }
  console.error(`${file} is out of date. Run \`npm run generate\` and commit the result.`);
  return 1;
}
