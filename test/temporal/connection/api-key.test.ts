import { writeFile } from "node:fs/promises";
import path from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { followApiKey } from "../../../src/temporal/connection/api-key.ts";
import { temporaryFolder } from "../../embedded/support.ts";

test("a key in use is not reloaded because its file ends with a newline", async () => {
  const apiKeyFile = path.join(await temporaryFolder(), "api-key");
  await writeFile(apiKeyFile, "first-key\n");
  /** Follows the file from this key on; answers the keys that replaced it, and what was logged. */
  const follow = (apiKey: string) => {
    const keys: string[] = [];
    const logged: string[] = [];
    const target = {
      apiKeyFile,
      connectionOptions: { address: "localhost:7233", apiKey },
      namespace: "default",
    };
    const log = pino({ base: null }, { write: (line: string) => void logged.push(JSON.parse(line).msg) });
    onTestFinished(followApiKey(target, [{ setApiKey: (key) => void keys.push(key) }], log));
    return { keys, logged };
  };
  const [same, other] = [follow("first-key"), follow("other-key")];
  // By then, the first one has looked too.
  await expect.poll(() => other.keys).toEqual(["first-key"]);
  await writeFile(apiKeyFile, "second-key\n");
  await expect.poll(() => same.keys.at(-1)).toBe("second-key");
  expect(same).toEqual({ keys: ["second-key"], logged: ["Temporal's API key was reloaded"] });
});
