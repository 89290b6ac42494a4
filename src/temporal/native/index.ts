/** Connects workers to Temporal. Loads Temporal's native code. */
export { connectTemporal, NO_TEMPORAL, whyUnavailable } from "./connection.ts";
export { installRuntime } from "./runtime.ts";
