/** Circuit breakers: decide when a webhook is paused, probed, resumed or disabled. */
export { areDeliveriesExpected } from "./expected.ts";
export { type HeldBack, listHeldBack } from "./held.ts";
export { BREAKER_JOB } from "./job.ts";
export { NOTE_FOR_BREAKERS, noteGone } from "./note-attempts.ts";
