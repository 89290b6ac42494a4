import { expect, test } from "vitest";
import { planRegistration } from "../../src/event-types/index.ts";
import { hostileSets } from "../support/hostile-sets.ts";
import { NOTHING } from "./files.ts";

test.each(Object.entries(hostileSets()))(
  "a set that is made to cost much is refused: %s",
  async (_what, set) => {
    const { problems, files, added } = await planRegistration(NOTHING, set);
    expect(problems).not.toEqual([]);
    for (const each of problems) expect(each.problem.length).toBeLessThan(1_000);
    expect({ files, added }).toEqual({ files: [], added: [] });
  },
);
