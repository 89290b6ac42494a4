/** The health of webhooks. */
export { HEALTH_JOB, type HealthChange, judgeHealth, NOTE_ATTEMPTS } from "./webhook-health.ts";
