import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { temporaryFolder } from "../embedded/support.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";

await Promise.all([part("workflows"), part("page")]);

const root = fileURLToPath(new URL("../..", import.meta.url));
/** The contract of the image: `docker stop` is obeyed while the service starts. In milliseconds. */
const MAX_STOP_MS = 3_000;

/** Starts the service, waits until it says something, and stops it by SIGTERM. */
async function stopAmid(says: RegExp, environment: Record<string, string>) {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", "src/main.ts"], {
    cwd: root,
    env: {
      PATH: process.env.PATH ?? "",
      DATA_DIR: path.join(await temporaryFolder(), "data"),
      SECRET_KEY: Buffer.alloc(32, 1).toString("base64"),
      HTTP_PORT: "0",
      GRPC_PORT: "0",
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
  }
  await vi.waitUntil(() => says.test(printed), { timeout: 30_000, interval: 20 });
  const ended = once(child, "close");
  const toldAt = performance.now();
  child.kill("SIGTERM");
  const [code] = await ended;
  return { code, ms: performance.now() - toldAt, printed };
}

test.each(["api", "worker"])("ROLE=%s obeys SIGTERM while the database is unavailable", async (role) => {
  const { code, ms, printed } = await stopAmid(/waiting for the database/, {
    ROLE: role,
    DATABASE_URL: `postgres://nobody:nothing@127.0.0.1:${await anyPort()}/none`,
    TEMPORAL_ADDRESS: `127.0.0.1:${await anyPort()}`,
    LOG_LEVEL: "warn",
  });
  expect(code).toBe(0);
  expect(printed).toContain("stopping before the service is ready");
  expect(ms).toBeLessThan(MAX_STOP_MS);
});

test("a worker obeys SIGTERM while Temporal is unavailable", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const { code, ms } = await stopAmid(/waiting for Temporal/, {
    ROLE: "worker",
    DATABASE_URL: database.url,
    TEMPORAL_ADDRESS: `127.0.0.1:${await anyPort()}`,
    LOG_LEVEL: "warn",
  });
  expect(code).toBe(0);
  expect(ms).toBeLessThan(MAX_STOP_MS);
});

/** Loaded before the service: while `src/service.ts` is loaded, prints its pid and waits for the end of its parent. */
const WAITS_FOR_ORPHANHOOD = `
  import { writeSync } from "node:fs";
  import { registerHooks } from "node:module";
  registerHooks({
    load(url, context, next) {
      if (url.endsWith("/src/service.ts")) {
        const parent = process.ppid;
        writeSync(1, "loading in " + process.pid + "\\n");
        while (process.ppid === parent) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
      }
      return next(url, context);
    },
  });
`;

test.skipIf(process.platform === "win32")(
  "SIGTERM of npm's shell while the code loads ends the service too",
  async () => {
    const command = '"$0" --import "$1" --disable-warning=ExperimentalWarning src/main.ts';
    const preload = `data:text/javascript,${encodeURIComponent(WAITS_FOR_ORPHANHOOD)}`;
    const shell = spawn("sh", ["-c", `true && ${command}; true`, process.execPath, preload], {
      cwd: root,
      env: {
        PATH: process.env.PATH ?? "",
        npm_lifecycle_event: "start",
        ROLE: "api",
        SECRET_KEY: Buffer.alloc(32, 1).toString("base64"),
        DATABASE_URL: `postgres://nobody:nothing@127.0.0.1:${await anyPort()}/none`,
        HTTP_PORT: "0",
        GRPC_PORT: "0",
        LOG_LEVEL: "silent",
      },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let pid = 0;
    onTestFinished(() => {
      shell.kill("SIGKILL");
      try {
        if (pid > 0) process.kill(pid, "SIGKILL");
      } catch {
        // Ended, as it should.
      }
    });
    let printed = "";
    shell.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
    // Its output ends with the service, not with the shell.
    const closed = once(shell, "close");
    await vi.waitUntil(() => /loading in \d+\n/.test(printed), { timeout: 30_000, interval: 20 });
    pid = Number(/loading in (\d+)/.exec(printed)?.[1]);
    shell.kill("SIGTERM");
    await closed;
    expect(printed).toContain("stopping before the service is ready");
  },
);
