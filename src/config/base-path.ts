/** Paths of the service itself, which would hide the overview of the settings page. */
const TAKEN = /^\/(?:docs|openapi\.json|healthz|readyz)$/;

/**
 * A path prefix, such as `/webhooks` or `/tools/webhooks`, without a slash at its end. Empty for the root of a host. Undefined if the text
 * is no such prefix, or a path of the service itself.
 */
export function basePathOf(text: string): string | undefined {
  const path = text.trim().replace(/\/+$/, "");
  const isPath = /^(?:\/(?!\.{1,2}(?:\/|$))[\w.~-]+)*$/.test(path);
  return isPath && !TAKEN.test(path) ? path : undefined;
}
