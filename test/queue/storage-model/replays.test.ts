import { testHistories } from "./histories.ts";
import { replaySteps } from "./replay-steps.ts";

await testHistories("replays", replaySteps, replaySteps);
