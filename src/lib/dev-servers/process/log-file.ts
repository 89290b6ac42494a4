import { type FileHandle, mkdir, open, stat, truncate } from "node:fs/promises";
import path from "node:path";

/** The size above which a log file is emptied at the next start, in bytes. */
const LIMIT_BYTES = 10 * 1024 * 1024;
const READ_BYTES = 64 * 1024;
const HEAD_LINES = 3;
const TAIL_LINES = 5;

/** Opens a server's log for appending. Empties it first if it exceeds 10 MB. The caller must close it. */
export async function openLog(file: string): Promise<{ handle: FileHandle; offset: number }> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const size = await sizeOf(file);
  if (size > LIMIT_BYTES) await truncate(file, 0);
  return { handle: await open(file, "a", 0o600), offset: size > LIMIT_BYTES ? 0 : size };
}

/** The content of a log after `offset` bytes, at most 64 KiB. */
export async function readLog(file: string, offset: number): Promise<string> {
  const handle = await open(file, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(READ_BYTES), 0, READ_BYTES, offset);
    return buffer.toString("utf8", 0, bytesRead).trim();
  } finally {
    await handle.close();
  }
}

/** The first and last lines of a log, which usually contain the cause of a failure. */
export function excerpt(log: string): string {
  const lines = log.split("\n");
  if (lines.length <= HEAD_LINES + TAIL_LINES) return log;
  return [...lines.slice(0, HEAD_LINES), "...", ...lines.slice(-TAIL_LINES)].join("\n");
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}
