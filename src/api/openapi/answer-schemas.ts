import type { DescMessage } from "@bufbuild/protobuf";
import { messageSchema } from "../../contract/event-types/schema.ts";
import type { JsonSchema } from "../../contract/event-types/schema-scalars.ts";
import type { JsonAudience } from "../../contract/json/writer.ts";

/** The schemas of responses, each message type once. */
export interface AnswerSchemas {
  /** A reference to the message's schema. */
  of(desc: DescMessage): JsonSchema;
  /** All schemas referenced so far, by name. */
  components(): Record<string, JsonSchema>;
}

/** Creates schemas of messages as the JSON writer writes them for an audience. */
export function answerSchemas(audience: JsonAudience, nameOf: (desc: DescMessage) => string): AnswerSchemas {
  const known = new Map<string, JsonSchema>();

  function of(desc: DescMessage): JsonSchema {
    const name = nameOf(desc);
    if (!known.has(name)) {
      // Registered before its fields are processed, so that types may be recursive.
      known.set(name, {});
      known.set(name, messageSchema(desc, audience, of));
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  return { of, components: () => Object.fromEntries(known) };
}
