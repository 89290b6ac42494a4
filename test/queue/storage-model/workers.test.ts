import { deliverSteps } from "./attempt-steps.ts";
import { testHistories } from "./histories.ts";
import { runSteps } from "./run-steps.ts";
import { workerSteps } from "./worker-steps.ts";

await testHistories("workers", workerSteps, runSteps, deliverSteps);
