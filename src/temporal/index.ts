/** Names, addresses and links of Temporal. */
export { type WorkflowUrl, workflowLinks } from "./links.ts";
export { type TemporalNames, temporalNames } from "./names.ts";
export { ensureSearchAttributes, readSearchable, SEARCH_ATTRIBUTES } from "./search-attributes.ts";
export {
  clientOptions,
  currentApiKey,
  EMBEDDED_ADDRESS,
  type TemporalTarget,
  temporalTarget,
} from "./target.ts";
