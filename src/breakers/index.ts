/** Circuit breakers: decide when a webhook is paused, probed, resumed or disabled. */
export { decideBreakers, MAX_DECIDED } from "./decide.ts";
export { areDeliveriesExpected } from "./expected.ts";
export { type HeldBack, listHeldBack } from "./held.ts";
export { NOTE_FOR_BREAKERS, noteGone } from "./note-attempts.ts";
