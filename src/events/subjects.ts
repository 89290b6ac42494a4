import { slices } from "../calls/index.ts";
import { subjectOf } from "../contract/subject.ts";
import type { Db } from "../lib/pg/index.ts";
import { readSmallPayloads } from "./find.ts";

/** The subject of each event that has one, by the event's id. */
export type Subjects = ReadonlyMap<string, string>;

/** Reads what the events of deliveries are about. @param keyId the key whose call it is */
export async function readSubjects(
  db: Db,
  deliveries: readonly { eventId: string; process: number }[],
  keyId: string,
): Promise<Subjects> {
  const processes = new Map(deliveries.map(({ eventId, process }) => [eventId, process]));
  const payloads = await readSmallPayloads(db, [...processes.keys()]);
  const subjects = new Map<string, string>();
  // A thousand payloads take some 50 ms to parse.
  const slice = slices(keyId);
  for (const [eventId, payload] of payloads) {
    await slice();
    const subject = subjectOf(processes.get(eventId) as number, payload);
    if (subject !== undefined) subjects.set(eventId, subject);
  }
  return subjects;
}
