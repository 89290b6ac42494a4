/** A target URL, taken apart. */
export interface Target {
  /** `https://host:port`. */
  origin: string;
  /** Path and query. */
  path: string;
  /** Host and port: what shares connections and troubles. */
  host: string;
}

/** URLs kept taken apart, at most: they come again with every delivery of their webhook. */
const CACHE_SIZE = 10_000;
const parsed = new Map<string, Target>();

/** Takes a webhook's target URL apart. */
export function parseTarget(targetUrl: string): Target {
  let target = parsed.get(targetUrl);
  if (!target) {
    const { origin, pathname, search, host } = new URL(targetUrl);
    target = { origin, path: pathname + search, host };
    if (parsed.size >= CACHE_SIZE) parsed.clear();
    parsed.set(targetUrl, target);
  }
  return target;
}
