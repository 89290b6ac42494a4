import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const PROJECT = fileURLToPath(new URL("../..", import.meta.url));
/** Of the images that these tests build. Layers are kept, so that a second build takes seconds. */
const NAME = "localhost/webhook-service-test";
const MAX_OUTPUT_BYTES = 64 * 2 ** 20;

/** An image with Node 26 and npm to build from, by digest. Without it, one is made from Debian's packages. */
const givenBase = process.env.IMAGE_BASE;

/** The programs that build and run the image. crun refuses hybrid cgroups, so that containers run by runc. */
export const IMAGE_PROGRAMS = ["buildah", "podman", "runc", ...(givenBase ? [] : ["mmdebstrap"])];

/** podman with what works without systemd. */
const PODMAN = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"];

/** Runs a program; an error has all that it printed. */
async function call(program: string, ...args: string[]): Promise<string> {
  try {
    return (await run(program, args, { cwd: PROJECT, maxBuffer: MAX_OUTPUT_BYTES })).stdout.trim();
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    throw new Error(`${program} ${args.join(" ")}\n${stdout}\n${stderr}`, { cause: error });
  }
}

export const podman = (...args: string[]) => call("podman", ...PODMAN, ...args);

/**
 * Builds the image from the Dockerfile, with npm's registry and certificate authority of this machine.
 *
 * @returns its name
 */
export async function buildImage(revision: string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-image-"));
  try {
    const base = givenBase ?? (await makeBase(folder));
    const image = `${NAME}:built`;
    await call(
      "buildah",
      "bud",
      "--layers",
      "--isolation=chroot",
      "--network=host",
      ...(await npmOfThisMachine(folder)),
      `--build-arg=BASE=${base}`,
      "--build-arg=VERSION=0.0.0-test",
      `--build-arg=REVISION=${revision}`,
      `--tag=${image}`,
      PROJECT,
    );
    return image;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Debian 12 with this Node, npm and the user `node`, as the official image has them. */
async function makeBase(folder: string): Promise<string> {
  const base = `${NAME}-base:node-${process.versions.node}`;
  const known = await run("buildah", ["inspect", "--type=image", base]).then(
    () => true,
    () => false,
  );
  if (known) return base;
  const npm = path.resolve(await realpath((await call("which", "npm")) || "npm"), "../..");
  const archive = path.join(folder, "root.tar");
  const hooks = [
    'mkdir -p "$1/usr/local/lib/node_modules"',
    `cp '${process.execPath}' "$1/usr/local/bin/node"`,
    `cp -r '${npm}' "$1/usr/local/lib/node_modules/npm"`,
    'ln -s ../lib/node_modules/npm/bin/npm-cli.js "$1/usr/local/bin/npm"',
    'chroot "$1" groupadd --gid 1000 node',
    'chroot "$1" useradd --uid 1000 --gid node --create-home node',
    'rm -rf "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/*',
  ];
  await call(
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    "--include=libatomic1,libstdc++6",
    ...hooks.map((hook) => `--customize-hook=${hook}`),
    "bookworm",
    archive,
  );
  await call("podman", "import", "--quiet", archive, base);
  return base;
}

/** Options with which npm in the build reaches the registry that this machine uses. */
async function npmOfThisMachine(folder: string): Promise<string[]> {
  const settings = [`registry=${await call("npm", "config", "get", "registry")}`];
  const authority = process.env.NODE_EXTRA_CA_CERTS ?? (await call("npm", "config", "get", "cafile"));
  const options: string[] = [];
  if (existsSync(authority)) {
    settings.push("cafile=/etc/npm-authority.pem");
    options.push(`--volume=${authority}:/etc/npm-authority.pem:ro`);
  }
  const file = path.join(folder, "npmrc");
  await writeFile(file, `${settings.join("\n")}\n`);
  return [...options, `--volume=${file}:/usr/local/etc/npmrc:ro`];
}
