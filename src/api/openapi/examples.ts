import type { DescMessage, JsonValue } from "@bufbuild/protobuf";
import { sampleMessage } from "../../contract/event-types/sample.ts";
import { rawJson } from "../../contract/json/exact-json.ts";
import { type JsonAudience, jsonWriter } from "../../contract/json/writer.ts";

/** A deterministic example of a message for an audience. JSON.stringify keeps every digit of its numbers. */
export function exampleData(desc: DescMessage, audience: JsonAudience): JsonValue {
  const exact = (_key: string, value: unknown, { source }: { source: string }) =>
    typeof value === "number" && !Number.isSafeInteger(value) ? rawJson(source) : value;
  // TypeScript's types lack the third argument of the reviver.
  const reviver = exact as unknown as Parameters<typeof JSON.parse>[1];
  return JSON.parse(jsonWriter(desc, audience)(sampleMessage(desc)), reviver) as JsonValue;
}
