import { rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { watchFiles } from "../../../src/lib/process/watched-files.ts";
import { temporaryFolder } from "../dev-servers/support.ts";

test("a certificate and key that do not match are read again until both are new; the error is logged once", async () => {
  const folder = await temporaryFolder();
  const [cert, key] = [path.join(folder, "cert"), path.join(folder, "key")];
  const write = (file: string, text: string) => writeFile(file, text);
  await Promise.all([write(cert, "1"), write(key, "1")]);
  const used: string[][] = [];
  const errors: unknown[] = [];
  const stop = watchFiles(
    [cert, key],
    ["1", "1"],
    (contents) => {
      if (contents[0] !== contents[1]) throw new Error("they do not fit");
      used.push(contents);
    },
    (error) => errors.push(error),
  );
  onTestFinished(stop);
  await write(key, "2");
  await expect.poll(() => errors).toEqual([new Error("they do not fit")]);
  await write(cert, "2");
  await expect.poll(() => used).toEqual([["2", "2"]]);
  expect(errors).toHaveLength(1);
});

test("an error that comes back after the files were readable is reported again", async () => {
  const folder = await temporaryFolder();
  const file = path.join(folder, "key");
  await writeFile(file, "1");
  const errors: unknown[] = [];
  const reads: string[] = [];
  const stop = watchFiles(
    [file],
    ["1"],
    ([content = ""]) => void reads.push(content),
    (error) => errors.push(error),
  );
  onTestFinished(stop);
  await rm(file);
  await expect.poll(() => errors).toHaveLength(1);
  await writeFile(file, "2");
  await expect.poll(() => reads).toEqual(["2"]);
  await rm(file);
  await expect.poll(() => errors).toHaveLength(2);
});
