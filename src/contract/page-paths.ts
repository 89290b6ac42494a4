/** Addresses of the settings page: the service answers its page there, and the page's router shows what is named. */
export const PAGE_PATHS = {
  overview: "/",
  signIn: "/sign-in",
  keys: "/keys",
  apps: "/apps",
  audit: "/audit",
  incidents: "/incidents",
  incident: "/incidents/:id",
  webhooks: "/webhooks",
  newWebhook: "/webhooks/new",
  webhook: "/webhooks/:id",
  deliveries: "/deliveries",
  delivery: "/deliveries/:id",
  event: "/events/:id",
  replays: "/replays",
  customers: "/customers",
  // The customer is a parameter: a user_id may have slashes and dots, and more characters than a part of a path may.
  customer: "/customers/details",
} as const;

/** The placeholder in the built page that each response replaces by its nonce (Content-Security-Policy). */
export const NONCE_PLACEHOLDER = "nonce-of-this-answer";
