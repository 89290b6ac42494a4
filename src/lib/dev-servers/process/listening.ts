import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/**
 * Whether process `pid` itself listens on TCP `port` of 127.0.0.1; another process could answer there. Returns true
 * if the system does not reveal it (for example of an exiting process: check again whether it is alive).
 */
export function listensOn(pid: number, port: number): boolean {
  try {
    if (process.platform === "linux") return fromProc(pid, port);
    if (process.platform === "win32") return true;
    const query = ["-nP", "-a", "-p", String(pid), `-iTCP:${port}`, "-sTCP:LISTEN", "-t"];
    return execFileSync("lsof", query, { encoding: "utf8" }).trim() !== "";
  } catch (error) {
    // lsof exits with 1 if it finds nothing. Other codes are failures.
    return (error as { status?: number }).status !== 1;
  }
}

function fromProc(pid: number, port: number): boolean {
  const listening = "0A";
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const inodes = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[1] === local && fields[3] === listening)
    .map((fields) => `socket:[${fields[9]}]`);
  return readdirSync(`/proc/${pid}/fd`).some((fd) => {
    try {
      return inodes.includes(readlinkSync(`/proc/${pid}/fd/${fd}`));
    } catch {
      return false; // Closed in the meantime.
    }
  });
}
