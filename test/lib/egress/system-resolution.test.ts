import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, type TestContext, test } from "vitest";
import { NameResolver } from "../../../src/lib/egress/name-resolver.ts";
import { startNameServer } from "../../support/name-server.ts";
import { behaviourOf, RESOLUTION_CASES, type ResolutionCase, textOf } from "./resolution-cases.ts";

/** A folder of the test's own. */
async function ownFolder({ onTestFinished }: TestContext): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-resolution-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  return folder;
}

/** Starts the name servers of a case at 127.0.0.1 and the next addresses, all on one port, which is returned. */
async function startServers({ zones }: ResolutionCase, { onTestFinished }: TestContext): Promise<number> {
  let port = 0;
  for (const [index, zone] of zones.entries()) {
    if (!zone) continue;
    const server = await startNameServer(behaviourOf(zone), { host: `127.0.0.${index + 1}`, port });
    onTestFinished(server.close);
    port = server.port;
  }
  return port;
}

test.concurrent.for(RESOLUTION_CASES)("name resolution: $title", async (given, context) => {
  const { expect, onTestFinished } = context;
  const { resolver, hosts = [], hostname = "host", name, finds } = given;
  const folder = await ownFolder(context);
  const [hostsFile, resolverFile] = [path.join(folder, "hosts"), path.join(folder, "resolv.conf")];
  await writeFile(hostsFile, textOf(hosts));
  await writeFile(resolverFile, textOf(resolver, "127.0.0."));
  const port = await startServers(given, context);
  const names = new NameResolver({ hostsFile, resolverFile, hostname, port });
  onTestFinished(() => names.close());
  const found = await names.resolve(name).catch((error: NodeJS.ErrnoException) => {
    expect(error.code).toBe("LOOKUP_FAILED");
    return [];
  });
  expect(found.map(({ address }) => address).toSorted()).toEqual(finds);
});

/** Runs a command in new mount, network and UTS namespaces. The loopback interface is up, and has addresses of both families. */
const inNamespaces = (command: string) => [
  "--mount",
  "--net",
  "--uts",
  "sh",
  "-c",
  `ip link set lo up && ip addr add 10.9.0.1/24 dev lo && ip addr add fd00::1/64 dev lo && ${command}`,
];

/** Whether namespaces can be created here, and getent is that of glibc 2.36 or later, which knows `no-aaaa`. */
function canAskGetent(): boolean {
  try {
    const tries = "unshare --mount --uts mount --bind /etc/hosts /etc/hosts && getent --version";
    const version = execFileSync("unshare", inNamespaces(tries), { stdio: "pipe" }).toString();
    const [, minor = "0"] = /(?:GLIBC|GNU libc).* 2\.(\d+)$/m.exec(version) ?? [];
    return Number(minor) >= 36;
  } catch {
    return false;
  }
}

test.skipIf(!canAskGetent())(
  "getent finds the same addresses, or none where glibc gives up",
  async (context) => {
    const script = `exec "${process.execPath}" ${path.join(import.meta.dirname, "ask-getent.ts")} ${await ownFolder(context)}`;
    const output = await new Promise<string>((resolve, reject) =>
      execFile("unshare", inNamespaces(script), (error, stdout) => (error ? reject(error) : resolve(stdout))),
    );
    const found: string[][] = JSON.parse(output);
    expect(RESOLUTION_CASES.map(({ title }, n) => [title, found[n]])).toEqual(
      RESOLUTION_CASES.map(({ title, finds, glibcFinds = finds }) => [title, glibcFinds]),
    );
  },
);
