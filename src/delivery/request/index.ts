/** Requests to receivers: the rules for their URLs, warnings about their host names, their signatures, and test requests. */
export { createGuards } from "./guards.ts";
export { createHostWarnings } from "./host-warnings.ts";
export { createSigner } from "./signature.ts";
export { createTargetRules } from "./target-url.ts";
export { createRequestTrial } from "./trial.ts";
