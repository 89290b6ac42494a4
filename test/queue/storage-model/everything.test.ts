import { testHistories } from "./histories.ts";

await testHistories("everything");
