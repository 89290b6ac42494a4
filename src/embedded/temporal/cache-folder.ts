import { access, constants, mkdir } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

/**
 * The download folder shared by every DATA_DIR of this user: `webhook-service` below `$XDG_CACHE_HOME` or `~/.cache`;
 * DATA_DIR/cache if that is not writable. Creates the folder.
 */
export async function cacheFolder(dataDir: string): Promise<string> {
  const caches = process.env.XDG_CACHE_HOME || path.join(os.homedir(), ".cache");
  const shared = path.join(caches, "webhook-service");
  try {
    await mkdir(shared, { recursive: true });
    await access(shared, constants.W_OK | constants.X_OK);
    return shared;
  } catch {
    const own = path.join(dataDir, "cache");
    await mkdir(own, { recursive: true });
    return own;
  }
}
