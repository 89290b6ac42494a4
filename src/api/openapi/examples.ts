import type { DescMessage, JsonValue } from "@bufbuild/protobuf";
import { sampleMessage } from "../json/sample.ts";
import { type JsonAudience, jsonWriter } from "../json/writer.ts";

/** An example of a message as it is written for an audience, the same at each call. */
export function exampleData(desc: DescMessage, audience: JsonAudience): JsonValue {
  return JSON.parse(jsonWriter(desc, audience)(sampleMessage(desc))) as JsonValue;
}
