import { globSync } from "node:fs";
import { expect, test } from "vitest";
import { read, root } from "./project.ts";

test("NOTICE names every file of third_party with its copyright and licence", () => {
  const notice = read("NOTICE");
  const files = globSync("third_party/**/*.*", { cwd: root });
  expect(files.length).toBeGreaterThanOrEqual(3);
  for (const file of files) {
    const [, copyright] = /^\/\/ (Copyright .*)$/m.exec(read(file)) ?? [];
    expect(read(file), file).toContain("Apache License, Version 2.0");
    expect(notice, file).toContain(`  ${file}\n    ${copyright}\n`);
  }
});

test("the image and the client package carry NOTICE, as they carry LICENSE", () => {
  expect(read("Dockerfile")).toMatch(/^COPY .*\bNOTICE\b/m);
  expect(read(".dockerignore")).toMatch(/^!NOTICE$/m);
  expect(JSON.parse(read("clients/package.json")).files).toContain("NOTICE");
});
