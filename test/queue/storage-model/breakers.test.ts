import { deliverSteps } from "./attempt-steps.ts";
import { testHistories } from "./histories.ts";
import { breakerSteps } from "./run-steps.ts";
import { breakerSettingSteps } from "./webhook-steps.ts";

await testHistories("breakers", breakerSteps, breakerSettingSteps, deliverSteps);
