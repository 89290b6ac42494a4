import { execFile, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { startTestApi } from "../../support/test-api.ts";

const document = readFileSync(new URL("../../../docs/api.md", import.meta.url), "utf8");
const hasCurl = spawnSync("curl", ["--version"]).status === 0;

/** Each call that the document shows, with the answer it shows. */
function documentedCalls(): { command: string; answer: unknown }[] {
  const pairs = document.matchAll(/```sh\n(curl [^`]*)```\s*```json\n([^`]*)```/g);
  return [...pairs].map(([, command = "", answer = ""]) => ({ command, answer: JSON.parse(answer) }));
}

/** Times are told apart from the rest by their shape alone. */
function timeless(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replaceAll(/"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"/g, '"a time"'));
}

test.skipIf(!hasCurl)(
  "the calls that docs/api.md shows are answered as it shows, one after the other",
  async () => {
    // The Ids of a fresh database.
    const api = await startTestApi();
    onTestFinished(() => api.stop());
    const calls = documentedCalls();
    expect(calls).toHaveLength(document.match(/^```json$/gm)?.length ?? 0);
    const env = { ...process.env, BASE: `http://127.0.0.1:${api.httpPort}`, KEY: api.adminKey };
    for (const { command, answer } of calls) {
      const { stdout } = await promisify(execFile)("sh", ["-c", command], { env });
      expect(timeless(JSON.parse(stdout)), command).toEqual(timeless(answer));
    }
  },
);
