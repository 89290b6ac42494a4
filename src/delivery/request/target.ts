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
/** Before the other: the deliveries of a webhook share the object. */
const ofWebhook = new WeakMap<object, Target>();

/** A webhook's target URL, taken apart. */
export function targetOf(webhook: { targetUrl: string }): Target {
  let target = ofWebhook.get(webhook);
  if (!target) {
    target = parseTarget(webhook.targetUrl);
    ofWebhook.set(webhook, target);
  }
  return target;
}

function parseTarget(targetUrl: string): Target {
  let target = parsed.get(targetUrl);
  if (!target) {
    const { origin, pathname, search, host } = new URL(targetUrl);
    target = { origin, path: pathname + search, host };
    if (parsed.size >= CACHE_SIZE) parsed.clear();
    parsed.set(targetUrl, target);
  }
  return target;
}
