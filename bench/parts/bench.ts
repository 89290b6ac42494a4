import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Certificate, createLocalAuthority } from "../../demo/certificates.ts";
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from "../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";
import type { Show } from "./progress.ts";

/** What all measurements of a run share. */
export interface Bench extends AsyncDisposable {
  /** For files of the run; gone at its end. */
  folder: string;
  postgres: EmbeddedPostgres;
  /** Of the receivers, for `localhost`. */
  certificate: Certificate;
  /** For NODE_EXTRA_CA_CERTS of whoever sends to them. */
  authorityFile: string;
  /** Where CPU profiles of the service go; undefined when none are asked for. */
  profiles: string | undefined;
  show: Show;
  /** Aborted when the run is to end early: what is waited for is then given up, and what was started is ended. */
  stopping: AbortSignal;
}

/** Nothing that PostgreSQL promises is given up for speed; these are its defaults, written down. */
const DURABLE = { fsync: "on", synchronous_commit: "on", full_page_writes: "on" };

/** Starts the PostgreSQL of a run and makes its receivers' certificate, in a folder that is removed at the end. */
export async function openBench(options: Pick<Bench, "show" | "profiles" | "stopping">): Promise<Bench> {
  await using stack = new AsyncDisposableStack();
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
