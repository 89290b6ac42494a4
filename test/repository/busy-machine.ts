/**
 * Runs a command where the usual ports are taken, as a user: `busy-machine.ts UID GID COMMAND…`. In a namespace of its own,
 * starts the loopback interface first, and makes HOME read-only.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";

const TAKEN = [8_080, 9_090, 8_233, 5_432];

const [uid, gid, file = "", ...args] = process.argv.slice(2);
if (process.env.IN_NAMESPACE) {
  execFileSync("ip", ["link", "set", "lo", "up"]);
  // Not even root can write there.
  execFileSync("mount", ["-t", "tmpfs", "-o", "ro", "tmpfs", process.env.HOME as string]);
}
for (const port of TAKEN) {
  const server = createServer().listen(port, "0.0.0.0");
  // Another program of this machine has the port already.
  await Promise.race([once(server, "listening"), once(server, "error")]);
}
const child = spawn(file, args, { stdio: "inherit", uid: Number(uid), gid: Number(gid) });
const [code] = await once(child, "exit");
process.exit(code ?? 1);
