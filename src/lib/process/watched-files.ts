import { readFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";

/** The interval between two reads of the files, in milliseconds. */
const LOOK_INTERVAL_MS = 2_000;

/**
 * Reads files every 2 s and calls `use` with their contents when one has changed. Compares contents and not times,
 * because Kubernetes updates mounted files by replacing a symbolic link.
 *
 * @param known the contents already in use, in the order of `paths`
 * @param use called with the contents of all files, in the order of `paths`. If it throws, it is called again after the next
 *   read: files that belong together, such as a certificate and its key, may not change at the same moment
 * @param onError called with an error of reading or of `use`. Not called again while both the error and the contents stay the same
 * @returns a function that stops watching
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
      const isNew = contents.some((content, n) => content !== current[n]);
      if (isNew) await use(contents);
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
