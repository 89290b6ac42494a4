import { chmodSync, existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";

/** Processes that may use only a share of the processor time. */
export interface ControlGroup extends AsyncDisposable {
  /** A program that runs Node within the group. Its child processes are in the group too. */
  node: string;
  /** Limits the group to a share of all cores; 1 removes the limit. */
  setPace(pace: number): void;
}

/** A version of control groups. */
interface Version {
  root: string;
  /** A file of each group that shows that quotas are available. */
  quota: string;
  /** Writes a quota of a group; undefined removes it. */
  write(folder: string, quotaUs: number | undefined): void;
}

/** The interval in which a group may use its quota, in microseconds. Short, so that a slow pace is not a series of pauses. */
const PERIOD_US = 10_000;
const REMOVAL_TRIES = 20;
const REMOVAL_POLL_MS = 100;

const V1: Version = {
  root: "/sys/fs/cgroup/cpu",
  quota: "cpu.cfs_quota_us",
  write(folder, quotaUs) {
    writeFileSync(path.join(folder, "cpu.cfs_period_us"), String(PERIOD_US));
    writeFileSync(path.join(folder, "cpu.cfs_quota_us"), String(quotaUs ?? -1));
  },
};
const V2: Version = {
  root: "/sys/fs/cgroup",
  quota: "cpu.max",
  write(folder, quotaUs) {
    writeFileSync(path.join(folder, "cpu.max"), `${quotaUs ?? "max"} ${PERIOD_US}`);
  },
};

/**
 * Creates a control group.
 *
 * @param folder a folder for the program that starts processes in the group
 * @throws Error if this process may not create one
 */
export function openControlGroup(folder: string): ControlGroup {
  const version = existsSync(path.join(V2.root, "cgroup.controllers")) ? V2 : V1;
  const group = path.join(version.root, `webhook-cold-${process.pid}`);
  mkdirSync(group);
  try {
    if (version === V2) writeFileSync(path.join(version.root, "cgroup.subtree_control"), "+cpu");
    if (!existsSync(path.join(group, version.quota))) throw new Error(`${group} has no ${version.quota}`);
    version.write(group, undefined);
  } catch (error) {
    rmdirSync(group);
    throw error;
  }
  const node = path.join(folder, "node-in-group");
  writeFileSync(node, `#!/bin/sh\necho $$ > '${group}/cgroup.procs' && exec '${process.execPath}' "$@"\n`);
  chmodSync(node, 0o755);
  return {
    node,
    setPace(pace) {
      version.write(group, pace >= 1 ? undefined : Math.round(pace * availableParallelism() * PERIOD_US));
    },
    async [Symbol.asyncDispose]() {
      // A group is busy until the last of its processes has been removed.
      for (let tries = 1; ; tries += 1) {
        try {
          rmdirSync(group);
          return;
        } catch (error) {
          if (tries === REMOVAL_TRIES) throw error;
          await wait(REMOVAL_POLL_MS);
        }
      }
    },
  };
}
