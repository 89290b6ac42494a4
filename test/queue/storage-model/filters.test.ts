import { firstClaimSteps } from "./attempt-steps.ts";
import { testHistories } from "./histories.ts";
import { filterSteps } from "./webhook-steps.ts";
import { filterOutSteps } from "./worker-steps.ts";

await testHistories("filters", filterSteps, filterOutSteps, firstClaimSteps);
