import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { temporaryFolder } from "../embedded/support.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";

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
