import { spawn, spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { temporaryFolder } from "../embedded/support.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";

await Promise.all([part("workflows"), part("page")]);

const root = fileURLToPath(new URL("../..", import.meta.url));
/** Whether util-linux's `script` is there, which runs a command on a terminal of its own. */
const hasScript = spawnSync("script", ["--version"], { encoding: "utf8" }).stdout?.includes("util-linux");

/** A program of Node on a terminal. */
interface OnTerminal {
  printed(): string;
  /** Closes the terminal. */
  close(): void;
  /** Undefined until the program has ended. */
  exitCode(): Promise<number | undefined>;
}

/** Runs the file on a terminal until the end of the test. */
async function onTerminal(file: string, environment: Record<string, string> = {}): Promise<OnTerminal> {
  const folder = await temporaryFolder();
  const [shell, code] = [path.join(folder, "start.sh"), path.join(folder, "exit-code")];
  const node = `'${process.execPath}' --disable-warning=ExperimentalWarning '${file}'`;
  // This shell ignores the end of the terminal, and stores the exit code of the program.
  await writeFile(shell, `trap '' HUP\n${node}\necho $? > '${code}'\n`);
  const terminal = spawn("script", ["--quiet", "--command", `sh '${shell}'; true`, "/dev/null"], {
    cwd: root,
    env: { ...process.env, SHELL: "/bin/sh", ...environment },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const close = () => void terminal.kill("SIGKILL");
  onTestFinished(close);
  let printed = "";
  terminal.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    printed += chunk;
  });
  return {
    printed: () => printed,
    close,
    exitCode: () =>
      readFile(code, "utf8").then(
        (text) => (text.endsWith("\n") ? Number(text) : undefined),
        () => undefined,
      ),
  };
}

test.runIf(hasScript)("a closed terminal stops the service in order", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const service = await onTerminal("src/main.ts", {
    ROLE: "api",
    DATABASE_URL: database.url,
    SECRET_KEY: Buffer.alloc(32, 1).toString("base64"),
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    LOG_LEVEL: "info",
    ACCESS_LOG: "true",
    SHUTDOWN_DELAY: "3s",
  });
  const ports = /API +http:\/\/[^:]+:(\d+)\s[\s\S]*gRPC +\S+\s/;
  const port = await vi.waitUntil(() => ports.exec(service.printed())?.[1], {
    timeout: 30_000,
    interval: 20,
  });
  service.close();
  // Each request is logged.
  const readiness = async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).json();
  const stopping = { status: "not ready", reasons: ["the service is stopping"] };
  await expect.poll(readiness).toEqual(stopping);
  expect(await readiness()).toEqual(stopping);
  await expect.poll(() => service.exitCode(), { timeout: 20_000 }).toBe(0);
});

test.runIf(hasScript)("a process whose terminal is closed may print until it has stopped", async () => {
  const file = path.join(await temporaryFolder(), "program.mjs");
  await writeFile(
    file,
    `const { untilToldToStop } = await import(${JSON.stringify(`${root}src/process/shutdown.ts`)});
    setInterval(() => {}, 1_000);
    const told = untilToldToStop();
    console.log("running");
    await told;
    for (let n = 0; n < 3; n++) {
      console.log("stopping");
      await new Promise((resolve) => setImmediate(resolve));
    }
    process.exit(0);`,
  );
  const program = await onTerminal(file);
  await vi.waitUntil(() => program.printed().includes("running"), { timeout: 20_000, interval: 20 });
  program.close();
  await expect.poll(() => program.exitCode(), { timeout: 20_000 }).toBe(0);
});
