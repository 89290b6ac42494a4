/** ApiKeyService and SessionService. */
export { apiKeyService } from "./api-keys.ts";
export { sessionService } from "./sessions.ts";
