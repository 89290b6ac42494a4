import type { DescMessage, JsonValue } from "@bufbuild/protobuf";
import { sampleMessage } from "../../src/contract/event-types/sample.ts";
import { type JsonAudience, jsonWriter } from "../../src/contract/json/writer.ts";

/** A deterministic example of a message for an audience. */
export function exampleData(desc: DescMessage, audience: JsonAudience): JsonValue {
  return JSON.parse(jsonWriter(desc, audience)(sampleMessage(desc))) as JsonValue;
}
