import { writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { buildFileSet } from "../../test/support/registered-types.ts";
import { childOf, memoryOf } from "../parts/processes.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { transportTo } from "../parts/timed-calls.ts";

/** The number of starts of each kind, in turn. */
const STARTS = 4;
/** The time until the memory of an idle service is read, in milliseconds: V8 returns memory after a start. */
const SETTLED_MS = 8_000;
const PER_FILE = 50;
const MEBIBYTE = 1_048_576;

/** What thousands of registered event types cost. */
export const catalogue: Scenario = {
  name: "catalogue",
  what: "additional time of a start and memory of its processes with registered event types, and the first and second lists of them",
  count: { full: 5_000, small: 500 },
  targets: {
    "": { atMost: 3 },
    "memory of the API": { atMost: 100 },
    "memory of a delivery process": { atMost: 100 },
  },
  comparisons: [],
  async measure(bench, count) {
    const file = path.join(bench.folder, `types-${count}.binpb`);
    await writeFile(file, buildFileSet(typesOf(count)));
    await using without = await openStage(bench);
    await using withTypes = await openStage(bench, { EVENT_TYPES: file });
    const empty: Started[] = [];
    const full: Started[] = [];
    for (let n = 0; n < STARTS; n += 1) {
      empty.push(await start(without));
      full.push(await start(withTypes));
    }
    const added = (of: (started: Started) => number) => mean(full.map(of)) - mean(empty.map(of));
    return [
      { detail: "", unit: "s", value: added(({ seconds }) => seconds) },
      { detail: "start without", unit: "s", value: mean(empty.map(({ seconds }) => seconds)) },
      { detail: "memory of the API", unit: "MiB", value: added(({ api }) => api) },
      { detail: "memory of a delivery process", unit: "MiB", value: added(({ delivery }) => delivery) },
      ...(await lists(withTypes)),
    ];
  },
};

/** A service that has started and is idle: the seconds until it was ready, and the memory of its processes in MiB. */
interface Started {
  seconds: number;
  api: number;
  delivery: number;
}

async function start(stage: Stage): Promise<Started> {
  const began = performance.now();
  await using service = await stage.startAnother();
  const seconds = (performance.now() - began) / 1_000;
  await wait(SETTLED_MS, undefined, { signal: stage.bench.stopping });
  const delivery = childOf(service.pid);
  if (delivery === undefined) throw new Error("the service has no delivery process");
  return { seconds, api: memoryOf(service.pid) / MEBIBYTE, delivery: memoryOf(delivery) / MEBIBYTE };
}

/** The times of the first and second calls that list all event types, and the memory that they add. */
async function lists(stage: Stage): Promise<Measurement[]> {
  const client = createClient(WebhookService, transportTo(stage));
  const before = memoryOf(stage.service.pid);
  const calls = {
    "ListProcesses, brief": () => client.listProcesses({ brief: true }),
    "ListProcesses, full": () => client.listProcesses({}),
    "/openapi.json": () => fetch(`${stage.service.url}/openapi.json`).then((response) => response.text()),
  };
  const measured: Measurement[] = [];
  for (const [name, call] of Object.entries(calls))
    for (const time of ["first", "second"]) {
      const began = performance.now();
      await call();
      measured.push({ detail: `${time} ${name}`, unit: "ms", value: performance.now() - began });
    }
  await wait(SETTLED_MS, undefined, { signal: stage.bench.stopping });
  const value = (memoryOf(stage.service.pid) - before) / MEBIBYTE;
  return [...measured, { detail: "memory after these lists", unit: "MiB", value }];
}

/** Proto files with event types of ten fields each. */
export function typesOf(count: number): Record<string, string> {
  return Object.fromEntries(
    Array.from({ length: Math.ceil(count / PER_FILE) }, (_, file) => {
      const messages = Array.from({ length: Math.min(PER_FILE, count - file * PER_FILE) }, (_, n) =>
        messageOf(`Event${file}x${n}`),
      );
      return [`bench/area${file}/v1/events.proto`, `${header(file)}\n${messages.join("\n")}`];
    }),
  );
}

const header = (file: number) => `syntax = "proto3";
package bench.area${file}.v1;
import "google/protobuf/timestamp.proto";
import "webhook/v1/options.proto";
// A currency.
enum Currency { CURRENCY_UNSPECIFIED = 0; CURRENCY_EUR = 1; CURRENCY_USD = 2; }
// A line of a document.
message Line {
  // The product.
  int64 product_id = 1 [(webhook.v1.required) = true, (webhook.v1.example) = "7"];
  // The number of units.
  int32 quantity = 2 [(webhook.v1.example) = "2"];
}`;

const messageOf = (
  name: string,
) => `// Something has happened to a document of a customer. Receivers get it once for each change.
message ${name} {
  option (webhook.v1.event_type) = {};
  // The document's id.
  int64 document_id = 1 [(webhook.v1.required) = true, (webhook.v1.example) = "1001"];
  // The document's number as the customer knows it.
  string document_number = 2 [(webhook.v1.required) = true, (webhook.v1.searchable) = true, (webhook.v1.example) = "D-1001"];
  // The time of the change.
  google.protobuf.Timestamp changed_at = 3 [(webhook.v1.required) = true];
  // The customer.
  string customer_id = 4 [(webhook.v1.searchable) = true];
  // The total in cents.
  int64 total_minor = 5;
  // The currency of the total.
  Currency currency = 6;
  // The lines that have changed.
  repeated Line lines = 7;
  // Remarks, by language.
  map<string, string> remarks = 8;
  // Whether the customer knows.
  bool is_sent = 9;
  // The previous number, if any.
  optional string previous_number = 10;
}`;

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
