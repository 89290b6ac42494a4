import { RE2JS } from "@bufbuild/re2";
import fc from "fast-check";
import { expect, test } from "vitest";
import { programSize } from "../../../src/contract/filters/patterns.ts";

const count = fc.integer({ min: 0, max: 12 });
const repetition = fc.oneof(
  fc.constantFrom("", "", "*", "+", "?", "*?"),
  count.map((n) => `{${n}}`),
  count.map((n) => `{${n},}`),
  fc.tuple(count, count).map(([n, more]) => `{${n},${n + more}}`),
);
const character = fc.constantFrom("", ..."a b . ^ $ \\b \\d [ab] ] [^a] \\pL \\x{41} é E".split(" "));
/** Ends a repetition, so that another one can repeat it. */
const nothing = fc.constantFrom("", "", "(?i)", "(?-s)", "\\Q\\E", "\\Qa{3}\\E");

const { pattern } = fc.letrec<{ pattern: string; part: string }>((tie) => ({
  part: fc.oneof(
    { depthSize: "medium" },
    character,
    tie("pattern").map((each) => `(${each})`),
    tie("pattern").map((each) => `(?:${each})`),
    fc.array(tie("pattern"), { maxLength: 4 }).map((each) => `(${each.join("|")})`),
  ),
  pattern: fc
    .array(fc.tuple(tie("part"), repetition, nothing, repetition), { maxLength: 3 })
    .map((parts) => parts.map((part) => part.join("")).join("")),
}));

test("the program of a regular expression is not larger than its size says", () => {
  let [valid, repeated] = [0, 0];
  fc.assert(
    fc.property(pattern, (text) => {
      // Programs of the usual size only.
      if (programSize(text) > 100_000) return;
      let instructions: number;
      try {
        instructions = RE2JS.compile(text).re2().prog.numInst();
      } catch {
        return;
      }
      valid += 1;
      if (/\)(\\Q\\E)?\{\d/.test(text)) repeated += 1;
      expect(instructions, text).toBeLessThanOrEqual(programSize(text));
    }),
    { numRuns: 2_000 },
  );
  expect(valid).toBeGreaterThan(500);
  expect(repeated).toBeGreaterThan(50);
});
