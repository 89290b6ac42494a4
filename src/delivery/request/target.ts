/** A parsed target URL. */
export interface Target {
  /** `https://host:port`. */
  origin: string;
  /** Path and query. */
  path: string;
  /** Host and port: the key of the connection pool and of the host's limits. */
  host: string;
}

/** The maximum number of parsed URLs cached. Each delivery of a webhook needs the same one. */
const MAX_CACHED_URLS = 10_000;
const parsed = new Map<string, Target>();
/** First-level cache by object: deliveries of one claim share a webhook's object. */
const ofWebhook = new WeakMap<object, Target>();

/** The parsed target URL of a webhook. */
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
    if (parsed.size >= MAX_CACHED_URLS) parsed.clear();
    parsed.set(targetUrl, target);
  }
  return target;
}
