import { readFileSync } from "node:fs";
import { writeOrCheck } from "./generated-file.ts";

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
 * The document with the settings of each group as a list directly below the group's heading.
 *
 * @throws Error if the document lacks a group
 */
export function withSettings(document: string, groups: ReadonlyMap<string, Setting[]>): string {
  let text = document;
  for (const [heading, settings] of groups) {
    const start = `\n## ${heading}\n\n`;
    const [before, after] = text.split(start);
    if (before === undefined || after === undefined) {
      throw new Error(`docs/configuration.md needs the heading "## ${heading}" once`);
    }
    text = `${before}${start}${settings.map(item).join("")}${after.replace(/^(?:- .*\n)*/, "")}`;
  }
  return text;
}

function item({ name, value, description }: Setting): string {
  // Names of settings, which are plain text in .env.example.
  const meaning = description.replaceAll(/\b[A-Z]+_[A-Z_]+\b|\bROLE=\w+/g, "`$&`");
  return `- \`${name}\`${value === "" ? "" : ` (\`${value}\`)`}: ${meaning}\n`;
}

/** docs/configuration.md as it is, and as `.env.example` makes it. */
export function settingsDocument(): { current: string; generated: string } {
  const current = readFileSync(DOCUMENT, "utf8");
  return { current, generated: withSettings(current, settingGroups(readFileSync(SETTINGS, "utf8"))) };
}

if (import.meta.main) process.exitCode = writeOrCheck("docs/configuration.md", settingsDocument().generated);
