/** The health of webhooks. */
export { forgetHealthy, type HealthChange, judgeHealth, NOTE_ATTEMPTS } from "./webhook-health.ts";
