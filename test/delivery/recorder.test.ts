import pino from "pino";
import { expect, test } from "vitest";
import { type Recorded, Recorder } from "../../src/delivery/recorder.ts";
import { claim, openQueueDatabase, queue, result, SPACING } from "../queue/queue.ts";

const db = await openQueueDatabase();

test("results count as unrecorded until they are stored, so that the sender can bound them", async () => {
  await queue(db, 250);
  const log = pino({ level: "silent" });
  const recorder = new Recorder({ db, spacing: SPACING, log, onRecorded: () => {} });
  const stored = (await claim(db)).map(
    (each) => new Promise<Parameters<Recorded>[0]>((done) => recorder.record(result(each, 200), done)),
  );
  expect(recorder.unrecorded).toBe(250);
  expect(await Promise.all(stored)).toEqual(Array(250).fill("delivered"));
  expect(recorder.unrecorded).toBe(0);
});
