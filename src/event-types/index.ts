export { buildEntries } from "./entries.ts";
export type { CatalogueProblem, RegistrationPlan, StoredFile, StoredType } from "./model.ts";
export { planRegistration } from "./plan.ts";
export { readEventTypesFrom } from "./read-event-types.ts";
