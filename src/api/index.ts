/** The API: listeners, protocols, REST, limits and turns. */
export { assertFreePort } from "./listeners/listening.ts";
export { findSettingsPage } from "./listeners/settings-page.ts";
export type { CreateServices, Served } from "./routes.ts";
export { startApi } from "./server.ts";
export type { Load } from "./turns/heavy-methods.ts";
