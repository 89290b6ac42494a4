import { setImmediate as turn } from "node:timers/promises";
import pino from "pino";
import { afterAll, expect, test } from "vitest";
import { audited, OPERATOR } from "../../src/audit/audit-log.ts";
import { eventTypeNamed, eventTypes } from "../../src/contract/catalogue.ts";
import { buildAhead, registerEventTypes, watchEventTypes } from "../../src/event-types/index.ts";
import { empty, useDatabase } from "../support/database.ts";
import { buildFileSet, eventTypeProto } from "../support/registered-types.ts";
import { eventually } from "../support/wait.ts";

const db = await useDatabase();
afterAll(async () => {
  await empty(db);
  const watch = watchEventTypes(db, pino({ level: "silent" }));
  await watch.refresh();
  watch.close();
});

/** Event types that take 6 ms each to build, and how many of them are built. */
function slowTypes(count: number) {
  const [some] = eventTypes();
  if (!some) throw new Error("no event type");
  const built = { count: 0 };
  const types = Array.from({ length: count }, () => ({
    ...some,
    get payload() {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6);
      built.count += 1;
      return some.payload;
    },
  }));
  return { types, built };
}

test("event types are built in turns between which other work is done, until the end", async () => {
  const { types, built } = slowTypes(20);
  const done = buildAhead(types);
  const seen = new Set<number>();
  while (built.count < types.length) {
    seen.add(built.count);
    await turn();
  }
  await done;
  expect(seen.size).toBeGreaterThan(5);

  const ended = slowTypes(20);
  const end = new AbortController();
  const work = buildAhead(ended.types, end.signal);
  end.abort();
  await work;
  expect(ended.built.count).toBeLessThan(3);
});

test("a process that serves builds event types after it has read them, and one that cannot be built is logged", async () => {
  const set = buildFileSet({ "a.proto": eventTypeProto("Paid"), "b.proto": eventTypeProto("Sent") });
  await registerEventTypes(db, set, { audit: (change) => audited(db, OPERATOR, change) });
  // The type of the first field, 3 (int64), becomes 11 (a message).
  const wasInt64 = Buffer.from([0x20, 1, 0x28, 3]);
  const [{ descriptor } = { descriptor: Buffer.alloc(0) }] = await db("catalogue_files").where({
    path: "b.proto",
  });
  const at = descriptor.indexOf(wasInt64);
  expect(at).toBeGreaterThan(0);
  descriptor[at + 3] = 11;
  await db("catalogue_files").where({ path: "b.proto" }).update({ descriptor });

  const lines: string[] = [];
  const log = pino({ level: "error" }, { write: (line: string) => void lines.push(line) });
  for (const ahead of [false, true]) {
    const watch = watchEventTypes(db, log, { ahead });
    await watch.refresh();
    if (ahead) await eventually(() => expect(lines).toHaveLength(1));
    else await turn();
    expect(lines).toHaveLength(ahead ? 1 : 0);
    watch.close();
  }
  expect(lines[0]).toContain("building the registered event types failed");
  expect(eventTypeNamed("Paid")?.payload.fields).toHaveLength(2);
});
