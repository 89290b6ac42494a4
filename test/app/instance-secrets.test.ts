import { execFile } from "node:child_process";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { ensureFirstAdmin } from "../../src/app/first-admin.ts";
import { findSecretKey } from "../../src/app/instance-secrets.ts";
import { ALL_PERMISSIONS, findApiKeys, markRevoked } from "../../src/keys/api-keys.ts";
import { temporaryFolder } from "../lib/dev-servers/support.ts";
import { empty, useDatabase } from "../support/database.ts";

const run = promisify(execFile);
const db = await useDatabase();

test("an empty secret-key is replaced by a key for the owner's eyes only, which stays", async () => {
  const dataDir = await temporaryFolder();
  await writeFile(path.join(dataDir, "secret-key"), "");
  const key = await findSecretKey(undefined, dataDir);
  expect(key).toHaveLength(32);
  expect((await stat(path.join(dataDir, "secret-key"))).mode & 0o077).toBe(0);
  expect(await findSecretKey(undefined, dataDir)).toEqual(key);
  expect(await readdir(dataDir)).toEqual(["secret-key"]);
});

test("a damaged secret-key is kept, and refused with the remedy", async () => {
  const dataDir = await temporaryFolder();
  await writeFile(path.join(dataDir, "secret-key"), "AAAA\n");
  await expect(findSecretKey(undefined, dataDir)).rejects.toThrow(/is damaged.*restore it from a backup/);
  expect(await readFile(path.join(dataDir, "secret-key"), "utf8")).toBe("AAAA\n");
});

test.runIf(process.platform !== "win32")(
  "a start that cannot write the secret-key fails and leaves no file, and the next start makes the key",
  async () => {
    const dataDir = await temporaryFolder();
    const module = new URL("../../src/app/instance-secrets.ts", import.meta.url).href;
    const code = `const { findSecretKey } = await import(${JSON.stringify(module)}); await findSecretKey(undefined, process.argv[1]);`;
    const limited = run("sh", ["-c", 'ulimit -f 0; exec "$@"', "sh", process.execPath, "-e", code, dataDir]);
    await expect(limited).rejects.toThrow("EFBIG");
    expect(await readdir(dataDir)).toEqual([]);
    expect(await findSecretKey(undefined, dataDir)).toHaveLength(32);
  },
);

test("an empty admin-key is replaced by a key that works, works for a new database too, and stays revoked", async () => {
  const dataDir = await temporaryFolder();
  const urls = { url: undefined, directUrl: undefined, readUrl: undefined };
  const database = { ...urls, poolSize: 2, preparedStatements: true };
  const file = path.join(dataDir, "admin-key");
  const start = async () => {
    await ensureFirstAdmin(db, { adminKey: undefined, dataDir, database });
    return (await readFile(file, "utf8")).trim();
  };
  await empty(db);
  await writeFile(file, "");
  const secret = await start();
  const administrator = { name: "Administrator", permissions: ALL_PERMISSIONS, prefix: secret.slice(0, 12) };
  expect((await findApiKeys(db, [secret]))[0]).toMatchObject(administrator);
  expect(await start()).toBe(secret);

  // As a new database is.
  await empty(db);
  expect(await start()).toBe(secret);
  const restored = (await findApiKeys(db, [secret]))[0];
  expect(restored).toMatchObject(administrator);

  await markRevoked(db, restored?.id as string);
  await start();
  expect((await findApiKeys(db, [secret]))[0]).toBeNull();
});
