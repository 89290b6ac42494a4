import { type FileHandle, mkdir, open, stat, truncate } from "node:fs/promises";
import path from "node:path";

const LIMIT_BYTES = 10 * 1024 * 1024;
const TAIL_BYTES = 4096;
const TAIL_LINES = 8;

/** Opens a server's log for appending, emptied first when it is over 10 MB. The caller closes it. */
export async function openLog(file: string): Promise<{ handle: FileHandle; offset: number }> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const size = await sizeOf(file);
  if (size > LIMIT_BYTES) await truncate(file, 0);
  return { handle: await open(file, "a", 0o600), offset: size > LIMIT_BYTES ? 0 : size };
}

/** The last lines (at most 8) a log got after `offset` bytes, for an error message; empty when there are none. */
export async function tailOfLog(file: string, offset: number): Promise<string> {
  const size = await sizeOf(file);
  const from = Math.max(offset, size - TAIL_BYTES);
  if (size <= from) return "";
  const handle = await open(file, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - from), 0, size - from, from);
    return buffer.toString("utf8", 0, bytesRead).trimEnd().split("\n").slice(-TAIL_LINES).join("\n");
  } finally {
    await handle.close();
  }
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}
