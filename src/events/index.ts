/** Events and their payloads: fan-out, erasure, search. */
export { type Announcer, createAnnouncer } from "./announce.ts";
export { ERASURE_JOB, eraseOldPayloads, erasePayloads } from "./erase.ts";
export { fanOutStep } from "./fan-out.ts";
export { type EventFacts, eventsContaining, getEvent } from "./find.ts";
export { deleteIdempotencyKeys } from "./idempotency-keys.ts";
export { eventMatches, findMatchingEvents, type MatchingEvents } from "./search.ts";
export { readSubjects, type Subjects } from "./subjects.ts";
export { queueTestEvent } from "./test-events.ts";
