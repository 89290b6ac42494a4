import { readFileSync, writeFileSync } from "node:fs";
import { cell, table } from "./markdown.ts";

const SETTINGS = new URL("../.env.example", import.meta.url);
const DOCUMENT = new URL("../docs/configuration.md", import.meta.url);

/** A setting as `.env.example` describes it. */
interface Setting {
  name: string;
  /** The default; empty for none. */
  value: string;
  description: string;
}

/** The settings of `.env.example`, by the heading (`## …`) above them. */
export function settingGroups(example: string): Map<string, Setting[]> {
  const groups = new Map<string, Setting[]>();
  for (const [heading = "", ...lines] of example
    .split(/^## /m)
    .slice(1)
    .map((part) => part.split("\n"))) {
    const settings = [...lines.join("\n").matchAll(/^# (.+)\n([A-Z_]+)=(.*)$/gm)];
    groups.set(
      heading,
      settings.map(([, description = "", name = "", value = ""]) => ({ name, value, description })),
    );
  }
  return groups;
}

/**
 * The document with the table of each group between its markers, `<!-- settings: <heading> -->` and `<!-- end -->`.
 *
 * @throws Error if the document lacks a group, or names one that does not exist
 */
export function withSettings(document: string, groups: ReadonlyMap<string, Setting[]>): string {
  const left = new Set(groups.keys());
  const text = document.replaceAll(
    /(<!-- settings: (.+) -->\n)[\s\S]*?(<!-- end -->)/g,
    (_block, start: string, heading: string, end: string) => {
      if (!left.delete(heading)) throw new Error(`.env.example has no further settings "${heading}"`);
      return `${start}\n${settingTable(groups.get(heading) ?? [])}\n\n${end}`;
    },
  );
  if (left.size > 0) throw new Error(`docs/configuration.md has no table for: ${[...left].join(", ")}`);
  return text;
}

function settingTable(settings: readonly Setting[]): string {
  return table(
    ["Variable", "Default", "Meaning"],
    settings.map(({ name, value, description }) => [
      `\`${name}\``,
      value === "" ? "" : `\`${value}\``,
      // Names of settings, which are plain text in .env.example.
      cell(description.replaceAll(/\b[A-Z]+_[A-Z_]+\b|\bROLE=\w+/g, "`$&`")),
    ]),
  );
}

/** docs/configuration.md as it is, and as `.env.example` makes it. */
export function settingsDocument(): { current: string; generated: string } {
  const current = readFileSync(DOCUMENT, "utf8");
  return { current, generated: withSettings(current, settingGroups(readFileSync(SETTINGS, "utf8"))) };
}

function main(): number {
  const { current, generated } = settingsDocument();
  if (!process.argv.includes("--check")) {
    writeFileSync(DOCUMENT, generated);
    return 0;
  }
  if (current === generated) {
    console.log("docs/configuration.md is up to date");
    return 0;
  }
  console.error("docs/configuration.md is out of date. Run `npm run generate` and commit the result.");
  return 1;
}

if (import.meta.main) process.exitCode = main();
