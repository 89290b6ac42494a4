import { globSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { ERROR_DOMAIN, ERROR_REASONS } from "../../src/contract/errors.ts";
import { read, root } from "./project.ts";

const document = read("docs/clients.md");

test("docs/clients.md links to every example", () => {
  for (const file of globSync("clients/examples/**/*.*", { cwd: root }))
    expect(document).toContain(`(../${file.split(path.sep).join("/")})`);
});

test("the package's README.md shows the example in TypeScript as it is", () => {
  const file = "clients/examples/connect.ts";
  expect(read("clients/README.md")).toContain(`<!-- include ${file} -->\n\n\`\`\`ts\n${read(file)}\`\`\`\n`);
});

test.each(["ts", "py", "go"])(
  "publishing.%s repeats calls with the statuses that docs/clients.md names",
  (language) => {
    const [, named = ""] = document.match(/Repeat calls that fail with ([A-Z_, or]+),/) ?? [];
    const example = read(`clients/examples/publishing/publishing.${language}`);
    const repeated = [...example.matchAll(/\b(?:Code|StatusCode|codes)\.(\w+)\b(?!\{)/g)].map(
      ([, status = ""]) => status,
    );
    const comparable = (status: string) =>
      status.toLowerCase().replaceAll("_", "").replace("cancelled", "canceled");
    expect(repeated.map(comparable)).toEqual(named.split(/, | or /).map(comparable));
  },
);

test("docs/clients.md lists every reason of an error by its status, and no other, and gives no wrong meaning", () => {
  const items = document.match(/^- [A-Z_]+: `(?:.*\n {2})*.*$/gm) ?? [];
  const listed = items.flatMap((item) => {
    const [, status, reasons = ""] = /^- ([A-Z_]+): (.*)$/s.exec(item.replaceAll(/\s+/g, " ")) ?? [];
    return [...reasons.matchAll(/`([A-Z_]+)`(?: \(([^)]+)\))?/g)].map(
      ([, reason = "", meaning]) =>
        [
          reason,
          { status, meaning: meaning ?? ERROR_REASONS[reason as keyof typeof ERROR_REASONS]?.meaning },
        ] as const,
    );
  });
  expect(listed).toHaveLength(Object.keys(ERROR_REASONS).length);
  expect(Object.fromEntries(listed)).toEqual(ERROR_REASONS);
  expect(document).toContain(`always \`${ERROR_DOMAIN}\``);
});
