import { expect, test } from "vitest";
import { loadContents } from "../../src/queue/event-contents.ts";
import { openQueueDatabase, queue } from "./queue.ts";

const db = await openQueueDatabase();

test("payloads are loaded in the order asked for as far as they fit, and the first alone whatever its size", async () => {
  await queue(db, 3);
  // Each is seven bytes.
  const ids = await db("events").orderBy("id", "desc").pluck("id");
  const loaded = async (maxBytes: number, alone = false) => [
    ...(await loadContents(db, ids, { maxBytes, alone })).keys(),
  ];
  expect(await loaded(13)).toEqual(ids.slice(0, 1));
  expect(await loaded(14)).toEqual(ids.slice(0, 2));
  expect(await loaded(6)).toEqual([]);
  expect(await loaded(6, true)).toEqual(ids.slice(0, 1));
});
