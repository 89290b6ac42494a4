/** Starts dispatch runs. */
export { createDispatchTrigger, type DispatchTrigger } from "./dispatch-now.ts";
export { builtWorkflows } from "./workflow-bundle.ts";
