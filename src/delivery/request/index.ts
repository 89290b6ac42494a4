/** Requests to receivers: the rules for their URLs, their signatures, and test requests. */
export { createSigner } from "./signature.ts";
export { createTargetRules } from "./target-url.ts";
export { createRequestTrial } from "./trial.ts";
