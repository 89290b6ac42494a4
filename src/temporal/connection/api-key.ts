import type { Logger } from "pino";
import { watchFiles } from "../../process/watched-files.ts";
import type { TemporalTarget } from "./target.ts";

/**
 * Replaces the API key of connections whenever the file of TEMPORAL_API_KEY_FILE changes. The calls that follow carry the
 * new key; open ones are not interrupted.
 *
 * @returns stops watching
 */
export function followApiKey(
  { apiKeyFile, connectionOptions }: TemporalTarget,
  connections: readonly { setApiKey(key: string): Promise<void> | void }[],
  log: Logger,
): () => void {
  if (apiKeyFile === undefined) return () => {};
  let current = connectionOptions.apiKey;
  return watchFiles(
    [apiKeyFile],
    [current ?? ""],
    async ([content = ""]) => {
      const key = content.trim();
      if (key === "") throw new Error("the file is empty");
      // The file may hold white space around the key in use.
      if (key === current) return;
      await Promise.all(connections.map((connection) => connection.setApiKey(key)));
      current = key;
      log.info({ apiKeyFile }, "Temporal's API key was reloaded");
    },
    (err) => log.warn({ err, apiKeyFile }, "reloading Temporal's API key failed; the old one stays in use"),
  );
}
