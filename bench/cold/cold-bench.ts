import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLocalAuthority } from "../../demo/certificates.ts";
import type { Bench } from "../parts/bench.ts";
import type { Measurement, Target } from "../parts/scenario.ts";
import type { Host } from "../processes/receivers.ts";
import { type ControlGroup, openControlGroup } from "./control-group.ts";

/** Shared parts of all measurements of a run. */
export interface ColdBench
  extends Pick<Bench, "folder" | "certificate" | "authorityFile" | "show" | "stopping">,
    AsyncDisposable {
  /** The addresses of the receivers. */
  hosts: Host[];
  /** The control group of the service; undefined if this process may not create one. */
  group: ControlGroup | undefined;
  /** The ways to fail that are measured. */
  ways: readonly string[];
}

/** A scenario that measures the service from a cold start. */
export interface ColdScenario {
  name: string;
  /** A one-line description for the list of scenarios. */
  what: string;
  /** Whether only the first repeat measures it. Defaults to false. */
  once?: boolean;
  /** Targets by detail. */
  targets: Record<string, Target>;
  /** Measures one repeat, and yields each figure as soon as it is known. Stops everything that it started. */
  measure(bench: ColdBench, pace: number): AsyncGenerator<Measurement>;
}

const HOSTS = 200;

/** Creates the receivers' certificates and the control group, with a folder that is removed at the end. */
export async function openColdBench(
  options: Pick<ColdBench, "show" | "stopping" | "ways">,
): Promise<ColdBench> {
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-cold-"));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const authority = await createLocalAuthority();
  const authorityFile = path.join(folder, "authority.pem");
  await writeFile(authorityFile, authority.cert);
  const addresses = Array.from({ length: HOSTS }, (_, n) => `127.7.0.${n + 1}`);
  const hosts = await Promise.all(
    addresses.map(async (address) => ({ address, certificate: await authority.issue([address]) })),
  );
  let group: ControlGroup | undefined;
  try {
    group = stack.use(openControlGroup(folder));
  } catch (error) {
    options.show.step(
      `no control group can be created (${error instanceof Error ? error.message : error}): only pace 1 is measured`,
    );
  }
  const owned = stack.move();
  return {
    ...options,
    folder,
    certificate: await authority.issue(["localhost"]),
    authorityFile,
    hosts,
    group,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
