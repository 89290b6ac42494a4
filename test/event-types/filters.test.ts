import pino from "pino";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { audited, OPERATOR } from "../../src/audit/audit-log.ts";
import { registerEventTypes } from "../../src/event-types/registry.ts";
import { watchEventTypes } from "../../src/event-types/watch.ts";
import { runFilter } from "../../src/filters/filter-runner.ts";
import { FilterThreads } from "../../src/filters/filter-threads.ts";
import { empty, useDatabase } from "../support/database.ts";
import { buildFileSet, eventTypeProto } from "../support/registered-types.ts";

const db = await useDatabase();
const log = pino({ level: "silent" });
const watch = watchEventTypes(db, log);
// Other files of this process may have left event types.
await watch.refresh();
afterAll(async () => {
  await empty(db);
  await watch.refresh();
  watch.close();
});

async function register(text: string): Promise<void> {
  const set = buildFileSet({ "events.proto": text });
  await registerEventTypes(db, set, { audit: (change) => audited(db, OPERATOR, change) });
  await watch.refresh();
}

test("filters of registered event types are evaluated in the thread, also after the event types have changed", async () => {
  const threads = new FilterThreads(1_000, log);
  onTestFinished(() => threads.close());
  const ask = (process: number, expression: string, payload: string) =>
    runFilter(threads, {
      owner: "app",
      webhook: `${process}`,
      filter: { process, expression },
      event: { payload, userId: "tenant" },
    });
  expect(await ask(1, "event.order_id == 7", '{"OrderId":7}')).toEqual({ sent: true });
  expect(await ask(1004, "event.id == 7", '{"Id":7}')).toMatchObject({ problem: "invalid" });

  const proto = eventTypeProto("InvoicePaid", "process: 1004");
  await register(proto);
  expect(await ask(1004, "event.id == 7", '{"Id":7,"Label":"A"}')).toEqual({ sent: true });
  expect(await ask(1004, 'event.label == "B"', '{"Id":7,"Label":"A"}')).toEqual({ sent: false });
  expect(await ask(1004, "event.amount > 1", '{"Id":7}')).toMatchObject({ problem: "invalid" });
  expect(await ask(1, "event.order_id == 7", '{"OrderId":8}')).toEqual({ sent: false });

  await register(proto.replace("int64 id = 1", "int64 amount = 3; int64 id = 1"));
  const answers = await Promise.all([
    ask(1004, "event.amount > 1", '{"Id":7,"Label":"A","Amount":2}'),
    ask(1004, "event.id == 8", '{"Id":7,"Label":"A","Amount":2}'),
  ]);
  expect(answers).toEqual([{ sent: true }, { sent: false }]);
});
