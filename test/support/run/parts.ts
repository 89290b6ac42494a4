import { mkdtemp } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build, TARGETS } from "../../../scripts/build.ts";
import { WORKFLOW_BUNDLE } from "../../../src/dispatch/workflow-bundle.ts";
import { type Chromium, findChromium } from "./chromium.ts";
import type { Logs } from "./failures.ts";
import { startPostgres } from "./postgres.ts";
import { startTemporal } from "./temporal.ts";

/** What the files of a run share. Files keep apart by database and by task queue. */
export interface Parts {
  /** The superuser's address of the run's PostgreSQL, and the name of a migrated database to be cloned. */
  postgres: { url: string; template: string };
  /** `host:port` of the run's Temporal server. */
  temporal: { address: string };
  /** The file with the workflows' code. */
  workflows: { bundle: string };
  /** The folder of the built settings page. */
  page: { folder: string };
  /** What to start a Chromium from, or why there is none. */
  chromium: Chromium | { missing: string };
}

/** A started part, and what ends it. */
export interface Started<Name extends keyof Parts> {
  part: Parts[Name];
  /** The file that a server writes its log to. */
  log?: string;
  stop?: () => Promise<void>;
}

const root = fileURLToPath(new URL("../../..", import.meta.url));
const tell = (line: string) => console.log(line);

/** The parts of a run. */
export class RunParts {
  readonly #folder: string;
  readonly #started = new Map<keyof Parts, Promise<Started<keyof Parts>>>();

  /** @param folder for the files of servers */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** A part, started or built at the first request for it, so that a run of some files has only what these need. */
  async find(name: keyof Parts): Promise<unknown> {
    const started = this.#started.get(name) ?? this.#start(name);
    this.#started.set(name, started);
    return (await started).part;
  }

  async stop(): Promise<void> {
    const started = await Promise.allSettled(this.#started.values());
    await Promise.all(started.map((one) => one.status === "fulfilled" && one.value.stop?.()));
  }

  /** The logs of the servers that have started. */
  async logs(): Promise<Logs> {
    const logs = new Map<string, string>();
    for (const [name, starting] of this.#started) {
      const { log } = await starting.catch(() => ({ log: undefined }));
      if (log) logs.set(name, log);
    }
    return logs;
  }

  async #start(name: keyof Parts): Promise<Started<keyof Parts>> {
    switch (name) {
      case "postgres":
        return startPostgres(await this.#home(name));
      case "temporal":
        return startTemporal(await this.#home(name));
      case "workflows":
        await build(tell, [TARGETS.WORKFLOWS]);
        return { part: { bundle: WORKFLOW_BUNDLE } };
      case "page":
        await build(tell, [TARGETS.PAGE]);
        return { part: { folder: path.join(root, TARGETS.PAGE.folder) } };
      case "chromium":
        return { part: await findChromium() };
    }
  }

  #home(name: string): Promise<string> {
    return mkdtemp(path.join(this.#folder, `${name}-`));
  }
}
