/** PostgreSQL and Temporal as child processes, for development. */
export { findRunningPostgres, hasPostgres, startEmbeddedPostgres } from "./postgres/embedded-postgres.ts";
export { choosePort } from "./process/ports.ts";
export { ensureDataDir, keepSecret, readSecretFile } from "./process/state-file.ts";
export { lockDataDir } from "./service-lock.ts";
export { startEmbeddedTemporal } from "./temporal/embedded-temporal.ts";
