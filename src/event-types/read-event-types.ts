import { copyFile, mkdir, readdir, readFile, realpath, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { inPrivateFolder, runBuf } from "./buf.ts";
import { OPTIONS_FILE, OWN_FILES } from "./build.ts";
import { MAX_SET_BYTES } from "./read-set.ts";

/** The maximum size of a folder's proto files together, in bytes. */
const MAX_FOLDER_BYTES = 1_024 * 1_024;
/** The maximum number of files and folders in a folder. */
const MAX_ENTRIES = 10_000;
const ALLOWED = "a folder of .proto files, or a .binpb file";
const BUILD = "compile a .binpb file with `buf build -o events.binpb`";
/** This service's options, which the operator's files import. */
const OPTIONS = new URL(`../../proto/${OPTIONS_FILE}`, import.meta.url);

/**
 * Reads `EVENT_TYPES`: a FileDescriptorSet (`.binpb`), or a folder of proto files, which buf compiles in a private copy.
 *
 * @returns a FileDescriptorSet
 * @throws Error with everything that is wrong
 */
export async function readEventTypesFrom(given: string): Promise<Uint8Array> {
  const found = await stat(given).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`${given} cannot be read (${error.code}); EVENT_TYPES is ${ALLOWED}`);
  });
  if (found.isDirectory()) return inPrivateFolder((folder) => compile(given, folder));
  if (!found.isFile() || !given.endsWith(".binpb")) throw new Error(`${given} is not ${ALLOWED}; ${BUILD}`);
  if (found.size > MAX_SET_BYTES)
    throw new Error(`${given} has ${found.size} bytes, more than the ${MAX_SET_BYTES} allowed`);
  return readFile(given);
}

/** @param folder a private folder */
async function compile(given: string, folder: string): Promise<Uint8Array> {
  const source = path.join(folder, "source");
  await mkdir(source);
  await copyFiles(given, source);
  const options = path.join(source, OPTIONS_FILE);
  await mkdir(path.dirname(options), { recursive: true });
  await copyFile(OPTIONS, options);
  await writeFile(path.join(source, "buf.yaml"), "version: v2\n");
  const set = path.join(folder, "events.binpb");
  const findings = await runBuf(["build", source, "-o", set], folder);
  if (findings.length === 0) return readFile(set);
  const words = findings.map(({ path: file, start_line = 1, message }) => {
    if (file === undefined) return message;
    return `${path.join(given, path.relative(source, path.resolve(folder, file)))}:${start_line}: ${message}`;
  });
  throw new Error([`the event types in ${given} cannot be compiled:`, ...words].join("\n"));
}

/** Copies the proto files of a folder. @throws Error if there are none, too many, or links to other places */
async function copyFiles(given: string, source: string): Promise<void> {
  const root = await realpath(given);
  let bytes = 0;
  let entries = 0;
  let copied = 0;

  /** @param within the real paths of the folders around it, which links may lead to again */
  async function copyFolder(relative: string, within: readonly string[]): Promise<void> {
    for (const name of (await readdir(path.join(root, relative))).sort()) {
      // Hidden files, such as .git, and the folders that a ConfigMap's links lead to.
      if (name.startsWith(".")) continue;
      const each = path.join(relative, name);
      const shown = path.join(given, each);
      if (++entries > MAX_ENTRIES)
        throw new Error(`${given} has more than ${MAX_ENTRIES} files; use a folder of event types only`);
      const real = await realpath(path.join(root, each)).catch(() => undefined);
      const found = real === undefined ? undefined : await stat(real);
      if (!found?.isDirectory() && !name.endsWith(".proto")) continue;
      if (real === undefined || !found)
        throw new Error(`${shown} is a link to a file that does not exist; remove or correct it`);
      if (real !== root && !real.startsWith(root + path.sep))
        throw new Error(`${shown} is a link to ${real}, outside of the folder; copy the file into it`);
      if (found.isDirectory()) {
        if (!within.includes(real)) await copyFolder(each, [...within, real]);
        continue;
      }
      if (!found.isFile()) throw new Error(`${shown} is no file; remove it`);
      bytes += found.size;
      if (bytes > MAX_FOLDER_BYTES)
        throw new Error(`${given} has more than the ${MAX_FOLDER_BYTES} bytes allowed; ${BUILD} instead`);
      copied += 1;
      if (OWN_FILES.test(each.split(path.sep).join("/"))) continue;
      await mkdir(path.join(source, relative), { recursive: true });
      await copyFile(real, path.join(source, each));
    }
  }

  await copyFolder("", [root]);
  if (copied === 0)
    throw new Error(`${given} has no .proto files; declare event types in one, or unset EVENT_TYPES`);
}
