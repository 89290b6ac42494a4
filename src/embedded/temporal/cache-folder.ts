import { access, constants, mkdir } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

/**
 * Where downloads are kept for every DATA_DIR of this user: `webhook-service` below `$XDG_CACHE_HOME` or `~/.cache`;
 * DATA_DIR/cache where that cannot be written. It exists when this returns.
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
