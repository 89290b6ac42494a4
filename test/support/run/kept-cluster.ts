import { execFile } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { access, mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { canReach, isRoot, NOBODY } from "../../../src/embedded/process/owner.ts";

const run = promisify(execFile);
const project = fileURLToPath(new URL("../../..", import.meta.url));
const KEPT = path.join(project, ".cache/test-postgres");
/** What makes a cluster with the migrated template another one: its programs, and all code of the database. */
const SOURCES = ["package-lock.json", "src/db", "src/embedded/postgres", "test/support/run"];
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

  /** That of this code, this user and this day: migrations make the partitions of the coming week. */
  static async find(): Promise<KeptCluster> {
    const hash = createHash("sha256");
    for (const source of SOURCES) for (const file of await filesIn(source)) hash.update(await readFile(file));
    hash.update(`${process.getuid?.()} ${new Date().toISOString().slice(0, 10)}`);
    return new KeptCluster(path.join(KEPT, hash.digest("hex").slice(0, 16)));
  }

  /**
   * Moves a copy to a data folder, the spare one if there is one, and has another spare one made meanwhile. Returns false if
   * none is kept.
   */
  async copyTo(dataDir: string): Promise<boolean> {
    try {
      await access(this.#place);
      // As root, the server is another user's, and keeps its data elsewhere if that user cannot reach the folder.
      if (isRoot() && !(await canReach(NOBODY, dataDir))) return false;
      if (!(await this.#moveSpare(dataDir))) await copy(this.#place, dataDir);
      this.#refilling = this.#refill();
      return true;
    } catch {
      await Promise.all(PARTS.map((part) => rm(path.join(dataDir, part), { recursive: true, force: true })));
      return false;
    }
  }

  /** Resolves when the spare copy is made, or cannot be. */
  async refilled(): Promise<void> {
    await this.#refilling;
  }

  /** Returns false if there is none, another run has just taken it, or it is on another file system. */
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

  async #refill(): Promise<void> {
    const draft = path.join(KEPT, `draft-${randomUUID()}`);
    try {
      await mkdir(draft);
      await copy(this.#place, draft);
      await rename(draft, this.#spare);
    } catch {
      await rm(draft, { recursive: true, force: true }).catch(() => {});
    }
  }

  /** Keeps that of a data folder whose server is stopped, and no other. Does nothing if it is elsewhere, or the project is read-only. */
  async keep(dataDir: string): Promise<void> {
    const draft = path.join(KEPT, `draft-${randomUUID()}`);
    try {
      await access(path.join(dataDir, "postgres"));
      const others = await readdir(KEPT).catch(() => []);
      await mkdir(draft, { recursive: true });
      await copy(dataDir, draft);
      await Promise.all(others.map((name) => rm(path.join(KEPT, name), { recursive: true, force: true })));
      await rename(draft, this.#place);
    } catch {
      await rm(draft, { recursive: true, force: true }).catch(() => {});
    }
  }
}

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
