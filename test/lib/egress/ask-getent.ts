import { execFile } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { startNameServer } from "../../support/name-server.ts";
import { behaviourOf, RESOLUTION_CASES, type ResolutionCase, textOf } from "./resolution-cases.ts";

/*
 * Prints what getent finds for each case, a JSON array. Requires a network namespace of its own, whose loopback interface is up, and the
 * right to create mount namespaces. The argument is an empty folder.
 */
const [, , folder = ""] = process.argv;

async function ask({ resolver, hosts = [], hostname = "host", name, zones }: ResolutionCase, n: number) {
  const prefix = `127.0.${n + 1}.`;
  for (const [index, zone] of zones.entries())
    if (zone) await startNameServer(behaviourOf(zone), { host: `${prefix}${index + 1}`, port: 53 });
  const own = path.join(folder, String(n));
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

console.log(JSON.stringify(await Promise.all(RESOLUTION_CASES.map(ask))));
process.exit();
