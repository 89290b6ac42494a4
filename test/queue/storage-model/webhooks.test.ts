import { testHistories } from "./histories.ts";
import { webhookSteps } from "./webhook-steps.ts";

await testHistories("webhooks", webhookSteps);
