/** A request to a receiver: its address, its signature, and a trial of it. */
export { createSigner } from "./signature.ts";
export { createTargetRules } from "./target-url.ts";
export { createRequestTrial } from "./trial.ts";
