import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";

let dataDir: string;
let service: ServiceProcess | undefined;
/** The key of the first start, and the one made while it ran. */
let key: string;
let another: string;
const run = promisify(execFile);

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "webhook-test-admin-"));
});
afterAll(async () => {
  await service?.end("SIGTERM");
  await removeDataDir(dataDir);
  await rm(dataDir, { recursive: true, force: true });
});

async function statusOf(key: string): Promise<number | undefined> {
  const response = await fetch(`http://127.0.0.1:${service?.httpPort}/api/webhook/list`, {
    headers: { "X-Service-Key": key },
  });
  return response.status;
}

const file = () => path.join(dataDir, "admin-key");
const readKey = async () => (await readFile(file(), "utf8")).trim();

/** What `npm run admin-key` prints to a pipe: the key alone. */
async function makeAdminKey(of = dataDir): Promise<string> {
  const { stdout } = await run(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", "src/admin-key.ts"],
    {
      env: { ...process.env, DATA_DIR: of },
    },
  );
  return stdout.trim();
}

describe("the first administrator", () => {
  test("finds a key in DATA_DIR/admin-key, for the owner's eyes only, and can make another while the service runs", async () => {
    service = await startServiceProcess({ DATA_DIR: dataDir });
    key = await readKey();
    expect((await stat(file())).mode & 0o777).toBe(0o600);
    expect(await statusOf(key)).toBe(200);
    another = await makeAdminKey();
    expect(another).toMatch(/^whk_/);
    expect(await statusOf(another)).toBe(200);
  });

  test("finds the same keys after a restart, and one that was made while the service did not run", async () => {
    expect(await service?.end("SIGTERM")).toBe(0);
    const third = await makeAdminKey();
    service = await startServiceProcess({ DATA_DIR: dataDir });
    expect(await readKey()).toBe(key);
    const keys = [key, another, third, "whk_unknown"];
    expect(await Promise.all(keys.map(statusOf))).toEqual([200, 200, 200, 401]);
  });

  test("gets no key for a DATA_DIR without a database, and nothing is created there", async () => {
    const empty = await mkdtemp(path.join(tmpdir(), "webhook-test-admin-"));
    try {
      await expect(makeAdminKey(empty)).rejects.toMatchObject({
        code: 1,
        stdout: "",
        stderr: expect.stringContaining(`there is no database in ${empty}`),
      });
      expect(await readdir(empty)).toEqual([]);
    } finally {
      await removeDataDir(empty);
    }
  });

  test("is refused a second service on the same DATA_DIR with a clear error", async () => {
    await expect(startServiceProcess({ DATA_DIR: dataDir })).rejects.toThrow(
      /already uses .*; stop it, or set another DATA_DIR/,
    );
  });
});
