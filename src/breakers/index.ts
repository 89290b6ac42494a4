/** Circuit breakers: when a webhook is paused or disabled, and probes. */
export { decideBreakers, MAX_DECIDED } from "./decide.ts";
export { areDeliveriesExpected } from "./expected.ts";
export { type HeldBack, listHeldBack } from "./held.ts";
export { NOTE_FOR_BREAKERS, noteGone } from "./note-attempts.ts";
