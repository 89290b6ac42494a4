import { chmod, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { temporaryFolder } from "../embedded/support.ts";
import { startFaultParts } from "../faults/parts.ts";
import { startServiceProcess } from "../support/service-process.ts";

/** Node with a limit of open files, as a program. */
async function nodeWith(openFiles: number): Promise<string> {
  const program = path.join(await temporaryFolder(), "node");
  await writeFile(program, `#!/bin/sh\nulimit -n ${openFiles}\nexec "${process.execPath}" "$@"\n`);
  await chmod(program, 0o755);
  return program;
}

test.runIf(process.platform === "linux")(
  "a worker that may open too few files warns at its start, and says how many it needs and how to raise the limit",
  async () => {
    const parts = await startFaultParts();
    onTestFinished(() => parts.end());
    const node = await nodeWith(1_400);
    const [tooMany, fewer] = await Promise.all(
      ["4000", "100"].map(async (maxInFlight) => {
        const settings = { ...parts.environment, ROLE: "worker", DELIVERY_MAX_IN_FLIGHT: maxInFlight };
        const worker = await startServiceProcess(settings, [], undefined, node);
        onTestFinished(async () => {
          await worker.end("SIGKILL");
        });
        return worker;
      }),
    );
    await expect.poll(() => tooMany?.printed()).toContain("DELIVERY_MAX_IN_FLIGHT=4000 reduced to 700");
    expect(tooMany?.printed()).toMatch(
      /may open only 1400 files; raise that limit to 5200 \(ulimit -n, LimitNOFILE of systemd, --ulimit nofile of a container\)/,
    );
    await fewer?.end("SIGTERM");
    expect(fewer?.printed()).not.toContain("reduced to");
  },
);
