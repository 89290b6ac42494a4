import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { isDeepStrictEqual } from "node:util";
import { startNameServer } from "../../support/name-server.ts";
import { behaviourOf, RESOLUTION_CASES, type ResolutionCase, textOf } from "./resolution-cases.ts";

/*
 * Prints what getent finds for each case, a JSON array. Requires a network namespace of its own, whose loopback interface is up, and the
 * right to create mount namespaces. The argument is an empty folder.
 */
const [, , folder = ""] = process.argv;

const prefixOf = (n: number) => `127.0.${n + 1}.`;

async function startServers({ zones }: ResolutionCase, n: number): Promise<void> {
  for (const [index, zone] of zones.entries())
    if (zone) await startNameServer(behaviourOf(zone), { host: `${prefixOf(n)}${index + 1}`, port: 53 });
}

async function ask({ resolver, hosts = [], hostname = "host", name }: ResolutionCase, n: number) {
  const prefix = prefixOf(n);
  const own = path.join(folder, randomUUID());
  await mkdir(own);
  const files = {
    "resolv.conf": textOf(resolver, prefix),
    hosts: textOf(hosts),
    "nsswitch.conf": "hosts: files dns\n",
  };
  for (const [file, text] of Object.entries(files)) await writeFile(path.join(own, file), text);
  const binds = Object.keys(files).map((file) => `mount --bind "$0/${file}" /etc/${file}`);
  const script = ["set -e", 'hostname "$1"', ...binds, 'getent ahosts "$2" || test $? = 2'].join("\n");
  const args = ["--mount", "--uts", "sh", "-c", script, own, hostname, name];
  const output = await new Promise<string>((resolve, reject) =>
    execFile("unshare", args, (error, stdout) => (error ? reject(error) : resolve(stdout))),
  );
  const addresses = output.split("\n").map((line) => line.split(/\s/)[0] ?? "");
  return [...new Set(addresses)].filter((address) => address !== "").toSorted();
}

await Promise.all(RESOLUTION_CASES.map(startServers));
const found = await Promise.all(RESOLUTION_CASES.map(ask));
// glibc waits for an answer for a second or two, which pass on a busy machine before a name server has its turn.
for (const [n, each] of RESOLUTION_CASES.entries())
  for (let tries = 1; tries < 5 && !isDeepStrictEqual(found[n], each.glibcFinds ?? each.finds); tries += 1)
    found[n] = await ask(each, n);
console.log(JSON.stringify(found));
process.exit();
