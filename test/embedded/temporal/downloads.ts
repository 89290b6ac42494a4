import { once } from "node:events";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import path from "node:path";
import { onTestFinished, vi } from "vitest";
import { temporaryFolder } from "../support.ts";

/** Writes a program of the shell. */
export async function script(file: string, text: string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, `#!/bin/sh\n${text}\n`);
  await chmod(file, 0o755);
  return file;
}

/** A new DATA_DIR and cache folder. */
export async function newFolders(): Promise<{ dataDir: string; cache: string }> {
  const dataDir = await temporaryFolder();
  vi.stubEnv("XDG_CACHE_HOME", path.join(dataDir, "cache"));
  return { dataDir, cache: path.join(dataDir, "cache/webhook-service") };
}

/** Sends every download into a proxy of ours. */
export function stubProxy(port: number): void {
  for (const name of ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
    vi.stubEnv(name, `http://127.0.0.1:${port}`);
  for (const name of ["NO_PROXY", "no_proxy"]) vi.stubEnv(name, "");
}

/** A proxy that never answers. Returns the number of its connections so far. */
export async function stubSilentProxy(): Promise<() => number> {
  const proxy = createServer().listen(0, "127.0.0.1");
  await once(proxy, "listening");
  onTestFinished(() => void proxy.close());
  let connections = 0;
  proxy.on("connection", () => {
    connections += 1;
  });
  stubProxy((proxy.address() as { port: number }).port);
  return () => connections;
}
