import { eventSteps } from "./event-steps.ts";
import { testHistories } from "./histories.ts";

await testHistories("events", eventSteps);
