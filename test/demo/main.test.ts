import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { expect, onTestFinished, test, vi } from "vitest";
import { findRunningPostgres } from "../../src/embedded/postgres/embedded-postgres.ts";
import { findByCommand, markerOf } from "../../src/embedded/process/processes.ts";
import { temporaryFolder } from "../embedded/support.ts";
import { anyPort } from "../support/any-port.ts";
import { part } from "../support/parts.ts";

await Promise.all([part("workflows"), part("page")]);

const root = fileURLToPath(new URL("../..", import.meta.url));
/** How long a start and its downloads may take, in milliseconds. */
const PATIENCE = { timeout: 50_000, interval: 20 };

/** Starts the demo in a new folder. */
async function startDemo(environment: Record<string, string> = {}) {
  const folder = await temporaryFolder();
  const dataDir = path.join(folder, "demo");
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", "demo/main.ts"], {
    cwd: root,
    env: {
      ...process.env,
      HTTP_PORT: String(await anyPort()),
      GRPC_PORT: String(await anyPort()),
      DATA_DIR: folder,
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      printed += stripVTControlCharacters(chunk);
    });
  }
  return {
    printed: () => printed,
    runsPostgres: async () => (await findRunningPostgres(dataDir)) !== null,
    runsTemporal: () => findByCommand(`${markerOf("--db-filename")}${dataDir}/`).length > 0,
    /** Presses Ctrl-C, and resolves with the exit code. */
    async interrupt() {
      const ended = once(child, "close");
      child.kill("SIGINT");
      const [code] = await ended;
      return code as number;
    },
  };
}

test("Ctrl-C while the demo starts stops its servers", async () => {
  const demo = await startDemo();
  await vi.waitUntil(demo.runsPostgres, PATIENCE);
  expect(await demo.interrupt()).toBe(1);
  expect([await demo.runsPostgres(), demo.runsTemporal()]).toEqual([false, false]);
});

test("the demo ignores settings of other servers, and Ctrl-C while it delivers stops its own", async () => {
  const none = `127.0.0.1:${await anyPort()}`;
  const demo = await startDemo({
    TEMPORAL_ADDRESS: none,
    TEMPORAL_NAMESPACE: "production",
    DATABASE_URL_FILE: path.join(root, "no-such-file"),
    DATABASE_DIRECT_URL: `postgres://nobody:nothing@${none}/none`,
    SMTP_URL: `smtp://${none}`,
    TLS_CERT: path.join(root, "no-such-file"),
  });
  await vi.waitUntil(() => /good +gets .* answers 200/.test(demo.printed()), PATIENCE);
  expect([await demo.runsPostgres(), demo.runsTemporal()]).toEqual([true, true]);
  expect(await demo.interrupt()).toBe(1);
  expect(demo.printed()).toContain("stopped before every delivery ended");
  expect([await demo.runsPostgres(), demo.runsTemporal()]).toEqual([false, false]);
});
