import { endingSteps } from "./ending-steps.ts";
import { testHistories } from "./histories.ts";

await testHistories("endings", endingSteps, endingSteps);
