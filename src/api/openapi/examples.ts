import type { DescMessage, JsonValue } from "@bufbuild/protobuf";
import { type JsonAudience, jsonWriter } from "../../contract/json/writer.ts";
import { sampleMessage } from "../json/sample.ts";

/** A deterministic example of a message for an audience. */
export function exampleData(desc: DescMessage, audience: JsonAudience): JsonValue {
  return JSON.parse(jsonWriter(desc, audience)(sampleMessage(desc))) as JsonValue;
}
