import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Certificate, createLocalAuthority } from "../../demo/certificates.ts";
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/lib/dev-servers/postgres/postgres-home.ts";
import type { Show } from "./progress.ts";

/** Shared parts of all measurements of a run. */
export interface Bench extends AsyncDisposable {
  /** A folder for files of the run, removed at its end. */
  folder: string;
  postgres: EmbeddedPostgres;
  /** The receivers' certificate, for `localhost`. */
  certificate: Certificate;
  /** The value of NODE_EXTRA_CA_CERTS for processes that send to them. */
  authorityFile: string;
  /** The folder for CPU profiles of the service; undefined to write none. */
  profiles: string | undefined;
  /** The folder for results and charts. */
  results: string;
  show: Show;
  /** Aborted to end the run early: waits are given up and started processes are stopped. */
  stopping: AbortSignal;
}

/** PostgreSQL's default durability, set explicitly. */
const DURABLE = { fsync: "on", synchronous_commit: "on", full_page_writes: "on" };

/** Starts the PostgreSQL of a run and creates its receivers' certificate, in a folder that is removed at the end. */
export async function openBench(
  options: Pick<Bench, "show" | "profiles" | "results" | "stopping">,
): Promise<Bench> {
  await using stack = new AsyncDisposableStack();
  await mkdir(options.results, { recursive: true });
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-bench-"));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const dataDir = path.join(folder, "postgres");
  stack.defer(() => removeDataDir(dataDir));
  const postgres = await startEmbeddedPostgres({
    dataDir,
    progress: options.show.step,
    port: 0,
    settings: DURABLE,
  });
  stack.defer(() => postgres.stop());
  const authority = await createLocalAuthority();
  const authorityFile = path.join(folder, "authority.pem");
  await writeFile(authorityFile, authority.cert);
  const certificate = await authority.issue(["localhost", "127.0.0.1"]);
  const owned = stack.move();
  return {
    folder,
    postgres,
    certificate,
    authorityFile,
    ...options,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
