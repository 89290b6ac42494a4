import { glob, readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { part } from "../support/parts.ts";
import { quietRuntime } from "../support/test-service.ts";
import { ASK_FIRST, behindPatch, bundleChanged } from "./changed-workflows.ts";
import { RELEASED } from "./release.ts";
import { assertShape, SHAPES, workflowTypeOf } from "./shapes.ts";
import { misfits, storedHistories, textsOf } from "./stored-histories.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const stored = await storedHistories();
const latest = stored.filter(({ release }) => release === RELEASED.version);
const earlier = stored.filter(({ release }) => release !== RELEASED.version);
// What replays log of histories that are meant to fail.
quietRuntime();

/** The ids of the patches that the workflows ask for by these functions. */
async function patchIds(functions: readonly string[]): Promise<string[]> {
  const calls = new RegExp(`\\b(?:${functions.join("|")})\\(([^)]*)\\)`, "g");
  const ids = new Set<string>();
  for await (const file of glob("workflows/**/*.ts", { cwd: root })) {
    const source = await readFile(path.join(root, file), "utf8");
    for (const [call, argument] of source.matchAll(calls)) {
      const [, constant] = source.match(`const ${argument} = (".*");`) ?? [];
      const [, id] = (constant ?? argument)?.match(/^"(.+)"$/) ?? [];
      if (!id) throw new Error(`${file}: ${call} has no text, nor a constant of the file`);
      ids.add(id);
    }
  }
  return [...ids];
}

test("every patch of the workflows is a step of a shape, so that a release stores a history with it", async () => {
  const steps = new Set(Object.values(SHAPES).flat());
  const ids = await patchIds(["patched", "deprecatePatch"]);
  expect(ids.length).toBeGreaterThan(0);
  expect(ids.filter((id) => !steps.has(`patch ${id}`))).toEqual([]);
});

test("docs/operations.md names every patch that the released version lacks, for roll backs", async () => {
  const operations = await readFile(path.join(root, "docs/operations.md"), "utf8");
  for (const id of await patchIds(["patched"])) expect(operations).toContain(`"${id}"`);
});

test("the released version has stored histories, of the shapes that their names say", () => {
  expect(latest.length).toBeGreaterThan(20);
  for (const { shape, history } of stored) assertShape(shape, history);
});

test("stored histories name no machine, path or secret", () => {
  for (const { release, shape, history } of stored) {
    for (const text of textsOf(history)) {
      expect(text, `${release}/${shape}`).not.toMatch(
        /whk_|whsec_|file:|\/(home|root|Users|tmp|src)\/|\d@(?!worker)/,
      );
    }
  }
});

// test/workflows/stored-histories.test.ts replays those of the latest release.
test.skipIf(earlier.length === 0)(
  "the workflows replay every stored history of every earlier release",
  async () => {
    const code = await readFile((await part("workflows")).bundle, "utf8");
    expect(await misfits(code, earlier)).toEqual({});
  },
);

test("a workflow with another activity fits no history of its type of the release, and with patched() it fits all", async () => {
  const dispatches = latest.filter((one) => workflowTypeOf(one.history) === "dispatchPendingDeliveries");
  const changed = await misfits((await bundleChanged(ASK_FIRST)).code, latest);
  expect(Object.keys(changed)).toEqual(dispatches.map(({ release, shape }) => `${release}/${shape}`));
  for (const reason of Object.values(changed)) expect(reason).toMatch(/^DeterminismViolationError/);
  const { code } = await bundleChanged(behindPatch("ask-first", ASK_FIRST));
  expect(await misfits(code, latest)).toEqual({});
});
