import { readFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";

/** The interval between looks at the files, in milliseconds. */
const LOOK_INTERVAL_MS = 2_000;

/**
 * Reads files every 2 s and calls `use` with their contents when one has changed. Compares contents and not times,
 * because Kubernetes replaces a symbolic link.
 *
 * @param known the contents that are in use
 * @param use takes the new contents. If it throws, they are offered again at the next look, in case that only one of the
 *   files is new
 * @param onError called with an error of reading or using, once per contents
 * @returns stops watching
 */
export function watchFiles(
  paths: readonly string[],
  known: readonly string[],
  use: (contents: string[]) => Promise<void> | void,
  onError: (error: unknown) => void,
): () => void {
  const stopping = new AbortController();
  const { signal } = stopping;
  let current = [...known];
  let failed: string | undefined;

  async function look(): Promise<void> {
    let contents: string[] = [];
    try {
      contents = await Promise.all(paths.map((path) => readFile(path, "utf8")));
      if (contents.every((content, n) => content === current[n])) return;
      await use(contents);
      current = contents;
      failed = undefined;
    } catch (error) {
      const what = `${error}\n${contents.join("\n")}`;
      if (what !== failed) onError(error);
      failed = what;
    }
  }

  void (async () => {
    while (!signal.aborted) {
      await wait(LOOK_INTERVAL_MS, undefined, { signal, ref: false }).catch(() => {});
      if (!signal.aborted) await look();
    }
  })();
  return () => stopping.abort();
}
