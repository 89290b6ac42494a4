/** The API: listeners, protocols, REST, limits and turns. */
export { assertFreePort } from "./listeners/listening.ts";
export { findSettingsPage } from "./listeners/settings-page.ts";
export { startApi } from "./server.ts";
