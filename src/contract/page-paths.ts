/** Addresses of the settings page: the service answers its page there, and the page's router shows what is named. */
export const PAGE_PATHS = {
  overview: "/",
  signIn: "/sign-in",
  keys: "/keys",
  apps: "/apps",
  audit: "/audit",
  webhooks: "/webhooks",
  webhook: "/webhooks/:id",
  deliveries: "/deliveries",
  delivery: "/deliveries/:id",
  event: "/events/:id",
  replays: "/replays",
} as const;

/** Stands in the built page where each answer has a nonce of its own (Content-Security-Policy). */
export const NONCE_PLACEHOLDER = "nonce-of-this-answer";
