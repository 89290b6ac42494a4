import { randomBytes, randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { Webhook } from "standardwebhooks";
import { eventTypes } from "../../../src/contract/catalogue.ts";
import { sampleMessage } from "../../../src/contract/event-types/sample.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { registeredTypes } from "../../support/registered-types.ts";

export const root = new URL("../../../", import.meta.url).pathname;
const example = (file: string) => readFileSync(`${root}examples/billing/events/${file}`, "utf8");

/** Names that meet others, or words of a language. */
const ODD = `syntax = "proto3";
package odd.v1;
import "google/protobuf/timestamp.proto";
import "webhook/v1/options.proto";
// Ends a comment: */ and a docstring: """ and a \\\\ backslash.
message Money { option (webhook.v1.event_type) = {}; int64 none = 1; bool true = 2; string config = 3; double model_name = 4; bytes data = 5; }
message Record {
  option (webhook.v1.event_type) = {name: "Recorded"};
  enum Kind { KIND_UNSPECIFIED = 0; KIND_A = 1; }
  Kind kind = 1;
  Record parent = 2;
  repeated Record children = 3;
  map<int64, Kind> kinds = 4;
  map<string, Money> amounts = 5;
  optional uint64 count = 6;
  uint64 most = 7 [(webhook.v1.example) = "18446744073709551615"];
  sint64 least = 8 [(webhook.v1.example) = "-9223372036854775808"];
  oneof either { string left = 9; google.protobuf.Timestamp right = 10; }
}
message Empty { option (webhook.v1.event_type) = {alias: "nothing"}; }
`;

/** Names that the files use themselves, or that are words of a language. */
const WORDS = `syntax = "proto3";
package words.v1;
import "webhook/v1/options.proto";
message Webhook { option (webhook.v1.event_type) = {}; repeated list list = 1; class class = 2; map<string, ReadonlySet> sets = 3; }
message Delivery { option (webhook.v1.event_type) = {}; optional int64 payload = 1; }
message Payload { option (webhook.v1.event_type) = {}; None none = 1; }
message None { option (webhook.v1.event_type) = {}; Delivery delivery = 1; }
message Any { option (webhook.v1.event_type) = {}; Payload payload = 1; }
message Invoice { option (webhook.v1.event_type) = {}; InvoiceEvent event = 1; }
message InvoiceEvent { option (webhook.v1.event_type) = {}; int64 int = 1; string str = 2; }
message list { dict dict = 1; }
message dict { bool bool = 1; }
message ReadonlySet { double float = 1; }
enum class { def = 0; pass = 1; }
`;

export const types = [
  ...eventTypes(),
  ...registeredTypes({
    "billing/v1/types.proto": example("billing/v1/types.proto"),
    "billing/v1/events.proto": example("billing/v1/events.proto"),
    "odd/v1/odd.proto": ODD,
    "words/v1/words.proto": WORDS,
  }),
];
export const folder = mkdtempSync(path.join(os.tmpdir(), "receiver-types-"));
/** Removes the folder at the end of a test file. */
export const removeFolder = () => rmSync(folder, { recursive: true, force: true });

/** A signed delivery of each event type, as a receiver gets it. */
export const secret = `whsec_${randomBytes(32).toString("base64")}`;
export const deliveries = types.map(({ name, payload }) => {
  const body = jsonWriter(payload, "payload")(sampleMessage(payload));
  const [id, at] = [randomUUID(), new Date()];
  const headers = {
    "Webhook-Id": id,
    "Webhook-Timestamp": String(Math.floor(at.getTime() / 1_000)),
    "Webhook-Signature": new Webhook(secret).sign(id, at, body),
    "X-Service-Webhook-Id": id,
    "X-Service-Webhook-Process": name,
  };
  return { name, id, body, headers };
});
