import { execFile, spawnSync } from "node:child_process";
import { chmod, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { temporaryFolder } from "../lib/dev-servers/support.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { node, type Program, startProgram } from "../support/program.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { startedService } from "./started-service.ts";

await Promise.all([part("workflows"), part("page")]);

const nowhere = async () => `127.0.0.1:${await anyPort()}`;
const SECRET_KEY = Buffer.alloc(32, 1).toString("base64");
const LOOPBACK = { HOST: "127.0.0.1", HTTP_PORT: "0", GRPC_PORT: "0", SECRET_KEY };

/** The address of a database of the test's own. */
async function databaseUrl(): Promise<string> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  return database.url;
}

/** Has the program killed if the test fails before its end. */
function killed<T extends Program>(program: T): T {
  onTestFinished(() => void program.process.kill("SIGKILL"));
  return program;
}

// Linux has all addresses of 127.0.0.0/8, and localhost is only one of them.
test.runIf(process.platform === "linux")(
  "a service prints addresses with HOST, at which its ports answer, and no warnings; one Ctrl-C that arrives twice stops it in order",
  async () => {
    const HOST = "127.0.0.2";
    const { httpPort, grpcPort, metricsPort, printed, ...service } = killed(
      await startServiceProcess({
        ...{ ROLE: "api", DATABASE_URL: await databaseUrl(), SECRET_KEY, METRICS_PORT: "0", HOST },
        // It still runs when the second one arrives.
        SHUTDOWN_DELAY: "300ms",
      }),
    );
    expect(printed()).toMatch(
      new RegExp(
        `^Webhook service\nready \\(role: api\\)\n  metrics      http://${HOST}:${metricsPort}/metrics\n  API          http://${HOST}:${httpPort}\n[\\s\\S]*  gRPC         ${HOST}:${grpcPort}\n$`,
      ),
    );
    // The health check of the image.
    const check = (ports: Record<string, string>) =>
      promisify(execFile)(process.execPath, ["docker/healthcheck.js"], {
        env: { HOST, HTTP_PORT: "1", ...ports },
      });
    await check({ HTTP_PORT: String(httpPort) });
    await check({ METRICS_PORT: String(metricsPort), TLS_CERT: "cert.pem" });
    await expect(check({ METRICS_PORT: "1", HTTP_PORT: String(httpPort) })).rejects.toMatchObject({
      code: 1,
    });

    service.process.kill("SIGINT");
    await service.until(/stopping: completing requests in flight/);
    service.process.kill("SIGINT");
    expect(await service.ended).toBe(0);
    expect(printed()).toMatch(/\nstopped\n$/);
  },
);

/** Node with a limit of open files, as a program. */
async function nodeWith(openFiles: number): Promise<string> {
  const program = path.join(await temporaryFolder(), "node");
  await writeFile(program, `#!/bin/sh\nulimit -n ${openFiles}\nexec "${process.execPath}" "$@"\n`);
  await chmod(program, 0o755);
  return program;
}

test.runIf(process.platform === "linux")(
  "a worker warns of too few files, NODE_TLS_REJECT_UNAUTHORIZED=0 and DELIVERY_PROXY_DNS=remote, and obeys SIGTERM while Temporal is unavailable",
  async () => {
    const [, ...command] = node("src/main.ts");
    const worker = killed(
      startProgram([await nodeWith(1_400), ...command], {
        environment: {
          ...LOOPBACK,
          ROLE: "worker",
          DATABASE_URL: await databaseUrl(),
          TEMPORAL_ADDRESS: await nowhere(),
          LOG_LEVEL: "warn",
          DELIVERY_MAX_IN_FLIGHT: "4000",
          NODE_TLS_REJECT_UNAUTHORIZED: "0",
          DELIVERY_PROXY: "http://proxy.example",
          DELIVERY_PROXY_DNS: "remote",
        },
      }),
    );
    await worker.until(/waiting for Temporal/);
    expect(worker.printed()).toContain("the service checks literal addresses only");
    expect(worker.printed()).toContain("NODE_TLS_REJECT_UNAUTHORIZED=0 does not apply to deliveries");
    expect(worker.printed()).toContain(
      "DELIVERY_MAX_IN_FLIGHT=4000 reduced to 700: the process may open only 1400 files; raise that limit to 5200 (ulimit -n, LimitNOFILE of systemd, --ulimit nofile of a container)",
    );
    expect(await worker.end("SIGTERM")).toBe(0);
    expect(worker.printed()).toContain("stopping before the service is ready");
  },
);

// The next test has an API do so.
test("a worker obeys SIGTERM while the database is unavailable", async () => {
  const { starting, readiness, giveUp } = await startedService({
    ...{ ROLE: "worker", DATABASE_URL: `postgres://nobody:nothing@${await nowhere()}/none` },
  });
  starting.catch(() => {});
  await until(async () => /waits for its database/.test((await readiness()).reasons.join()));
  giveUp.abort();
  await expect(starting).rejects.toThrow("aborted");
});

/** Loaded before the service: while `src/app/service.ts` is loaded, prints its pid and waits for the end of its parent. */
const WAITS_FOR_ORPHANHOOD = `
  import { writeSync } from "node:fs";
  import { registerHooks } from "node:module";
  registerHooks({
    load(url, context, next) {
      if (url.endsWith("/src/app/service.ts")) {
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
    const shell = killed(
      startProgram(["sh", "-c", `true && ${command}; true`, process.execPath, preload], {
        environment: {
          ...LOOPBACK,
          npm_lifecycle_event: "start",
          ROLE: "api",
          DATABASE_URL: `postgres://nobody:nothing@${await nowhere()}/none`,
          LOG_LEVEL: "silent",
        },
      }),
    );
    const [, pid] = await shell.until(/loading in (\d+)\n/);
    onTestFinished(() => {
      try {
        process.kill(Number(pid), "SIGKILL");
      } catch {
        // Ended, as it should.
      }
    });
    shell.process.kill("SIGTERM");
    // Its output ends with the service, not with the shell.
    await shell.ended;
    expect(shell.printed()).toContain("stopping before the service is ready");
  },
);

/** Whether util-linux's `script` is there, which runs a command on a terminal of its own. */
const hasScript = spawnSync("script", ["--version"], { encoding: "utf8" }).stdout?.includes("util-linux");

test.runIf(hasScript)(
  "a closed terminal stops a service in order, which prints until it has stopped",
  async () => {
    const folder = await temporaryFolder();
    const [start, code] = [path.join(folder, "start.sh"), path.join(folder, "exit-code")];
    // This shell ignores the end of the terminal, and stores the exit code of the service.
    await writeFile(start, `trap '' HUP\n'${process.execPath}' src/main.ts\necho $? > '${code}'\n`);
    const terminal = killed(
      startProgram(["script", "--quiet", "--command", `sh '${start}'; true`, "/dev/null"], {
        environment: {
          ...LOOPBACK,
          SHELL: "/bin/sh",
          ROLE: "api",
          DATABASE_URL: await databaseUrl(),
          LOG_LEVEL: "info",
          ACCESS_LOG: "true",
          SHUTDOWN_DELAY: "1s",
        },
      }),
    );
    const [, port] = await terminal.until(/API +http:\/\/[^:]+:(\d+)\s[\s\S]*gRPC +\S+\s/);
    terminal.process.kill("SIGKILL");
    const exitCode = () => readFile(code, "utf8").catch(() => "");
    // Each request is logged.
    await until(async () => {
      await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => {});
      return (await exitCode()).endsWith("\n");
    });
    expect(await exitCode()).toBe("0\n");
  },
);
