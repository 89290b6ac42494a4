import { execFile } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { access, mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { canReach, isRoot, NOBODY } from "../../../src/lib/dev-servers/process/owner.ts";

const run = promisify(execFile);
const project = fileURLToPath(new URL("../../..", import.meta.url));
const KEPT = path.join(project, ".cache/test-postgres");
/** What makes a cluster with the migrated template another one: its programs, and all code of the database. */
const SOURCES = [
  "package-lock.json",
  "src/schema",
  "src/lib/pg",
  "src/lib/dev-servers/postgres",
  "test/support/run",
];
const PARTS = ["postgres", "postgres-password", "postgres-service-password"];

/** A cluster that an earlier run has kept: to create and migrate one takes two seconds. */
export class KeptCluster {
  readonly #place: string;
  readonly #spare: string;
  #refilling: Promise<void> | undefined;

  private constructor(place: string) {
    this.#place = place;
    this.#spare = `${place}-spare`;
  }

  /** The cluster for this code, user and day. Its day matters because migrations make the partitions of the coming week. */
  static async find(): Promise<KeptCluster> {
    const hash = createHash("sha256");
    for (const source of SOURCES) for (const file of await filesIn(source)) hash.update(await readFile(file));
    hash.update(`${process.getuid?.()} ${new Date().toISOString().slice(0, 10)}`);
    return new KeptCluster(path.join(KEPT, hash.digest("hex").slice(0, 16)));
  }

  /** Moves the spare copy to a data folder, or makes one there, and starts to make the next spare copy. Returns false if none is kept. */
  async copyTo(dataDir: string): Promise<boolean> {
    try {
      await access(this.#place);
      // As root, the server is another user's, and keeps its data elsewhere if that user cannot reach the folder.
      if (isRoot() && !(await canReach(NOBODY, dataDir))) return false;
      if (!(await this.#moveSpare(dataDir))) await copy(this.#place, dataDir);
      this.#refilling = copyWhole(this.#place, this.#spare);
      return true;
    } catch {
      await Promise.all(PARTS.map((part) => remove(path.join(dataDir, part))));
      return false;
    }
  }

  /** Resolves when the spare copy is made, or cannot be. */
  async refilled(): Promise<void> {
    await this.#refilling;
  }

  /** Returns false if there is none, or it is on another file system. */
  async #moveSpare(dataDir: string): Promise<boolean> {
    const taken = path.join(dataDir, "kept");
    try {
      await rename(this.#spare, taken);
      for (const part of PARTS) await rename(path.join(taken, part), path.join(dataDir, part));
      return true;
    } catch {
      return false;
    }
  }

  /** Keeps the cluster of a data folder, whose server must be stopped, in place of all others. Does nothing if it is not in the folder, or the project is read-only. */
  async keep(dataDir: string): Promise<void> {
    if (!(await readdir(dataDir)).includes("postgres")) return;
    const others = await readdir(KEPT).catch(() => []);
    await Promise.all(others.map((name) => remove(path.join(KEPT, name))));
    await copyWhole(dataDir, this.#place);
  }
}

/** Makes a copy that appears when it is complete. Does nothing if that is not possible, or another run has made it. */
async function copyWhole(from: string, to: string): Promise<void> {
  const draft = path.join(KEPT, `draft-${randomUUID()}`);
  try {
    await mkdir(draft, { recursive: true });
    await copy(from, draft);
    await rename(draft, to);
  } catch {
    await remove(draft);
  }
}

/** Removes a file or folder, if this user may. */
const remove = (place: string) => rm(place, { recursive: true, force: true }).catch(() => {});

/** With owners and permissions: as root, the server is another user's. */
async function copy(from: string, to: string): Promise<void> {
  await run("cp", ["-a", ...PARTS.map((part) => path.join(from, part)), to]);
}

async function filesIn(source: string): Promise<string[]> {
  const place = path.join(project, source);
  const names = await readdir(place, { recursive: true }).catch(() => null);
  return names
    ? names
        .filter((name) => name.endsWith(".ts"))
        .sort()
        .map((name) => path.join(place, name))
    : [place];
}
