/** Admits callers of the API. */
export { ADMISSION_HEADER, Admissions } from "./admissions.ts";
export { admittedGate, type Caller, createGate, type Gate, requestGate } from "./auth.ts";
export { KEY_HEADER } from "./key-refusals.ts";
export { sessionIn } from "./page-session.ts";
export { isPublic, needsDatabase } from "./public-services.ts";
