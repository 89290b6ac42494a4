import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { part } from "../support/parts.ts";
import { RELEASED } from "../upgrade/release.ts";
import { misfits, storedHistories } from "../upgrade/stored-histories.ts";

test("the workflows replay every stored history of the latest release", async () => {
  const code = await readFile((await part("workflows")).bundle, "utf8");
  const stored = (await storedHistories()).filter(({ release }) => release === RELEASED.version);
  expect(await misfits(code, stored)).toEqual({});
});
