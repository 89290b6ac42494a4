import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseEnv } from "node:util";
import { expect, test } from "vitest";
import { readConfig, variableNames } from "../../src/config/config.ts";

const example = read(".env.example");
const table = settingsTable(read("docs/configuration.md"));

function read(file: string): string {
  return readFileSync(fileURLToPath(new URL(`../../${file}`, import.meta.url)), "utf8");
}

/** The first table of the document: default by variable. */
function settingsTable(markdown: string): Map<string, string> {
  const lines = markdown.split("\n");
  const first = lines.findIndex((line) => line.startsWith("| Variable"));
  const rows = lines.slice(first + 2, lines.indexOf("", first));
  return new Map(
    rows.map((row) => {
      const [, name = "", value = ""] = row.split("|").map((cell) => cell.trim().replaceAll("`", ""));
      return [name, value];
    }),
  );
}

test(".env.example has every setting, once, and no other", () => {
  const names = [...example.matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name);
  expect(names).toEqual([...new Set(names)]);
  expect(names.toSorted()).toEqual(variableNames.toSorted());
});

test(".env.example explains each setting in one line above it", () => {
  const lines = example.trimEnd().split("\n").slice(3);
  for (let i = 0; i < lines.length; i += 2) {
    expect(lines[i]).toMatch(/^# .{5,}/);
    expect(lines[i + 1]).toMatch(/^[A-Z_]+=\S*$/);
  }
});

test(".env.example holds the defaults: with it and without it the service is configured alike", () => {
  expect(readConfig(parseEnv(example))).toEqual(readConfig({}));
});

test("docs/configuration.md has every setting with the default of .env.example, and no other", () => {
  expect(Object.fromEntries(table)).toEqual(parseEnv(example));
});
