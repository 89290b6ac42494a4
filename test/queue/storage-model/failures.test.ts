import { deliverSteps } from "./attempt-steps.ts";
import { testHistories } from "./histories.ts";

await testHistories("failures", deliverSteps, deliverSteps);
