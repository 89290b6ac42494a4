/** Event types that operators register: checked, stored, and known to every process. */
export { buildAhead } from "./build-ahead.ts";
export { registerConfiguredTypes } from "./configured.ts";
export { buildEntries } from "./entries.ts";
export type { CatalogueProblem, RegistrationPlan, StoredFile, StoredType } from "./model.ts";
export { planRegistration } from "./plan.ts";
export { readEventTypesFrom } from "./read-event-types.ts";
export { type PastChange, readPastChanges, registerEventTypes, type StoredCatalogue } from "./registry.ts";
export {
  type EventTypesWatch,
  isKnownProcess,
  refreshEventTypes,
  storedEventTypes,
  watchEventTypes,
} from "./watch.ts";
