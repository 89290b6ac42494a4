import type { DescEnum, DescMessage } from "@bufbuild/protobuf";
import { eventTypes } from "../src/contract/catalogue.ts";
import { commentOf } from "../src/contract/comments.ts";
import { choiceOf, inWords, propertyType } from "../src/contract/event-types/type-words.ts";
import { parseExactJson, stringifyExactJson } from "../src/contract/json/exact-json.ts";
import { TIMESTAMP } from "../src/contract/json/field-types.ts";
import { enumMemberName, propertyName } from "../src/contract/json/names.ts";
import { describeEventTypes } from "../src/webhooks/rpc/event-types.ts";
import { writeOrCheck } from "./generated-file.ts";

const INTRODUCTION = `<!-- Generated from event.proto and notice.proto by \`npm run generate\`. Edit those files instead. -->

# Built-in events

The payloads of the event types that this service has from the start. [events.md](events.md) has how to add yours. The header \`X-Service-Webhook-Process\` names the event type.
\`GET /api/webhook/processes\` returns the same as JSON Schemas.

- All properties are always present, in this order.
- Times are UTC, \`YYYY-MM-DDThh:mm:ss\`. Enums are sent by name.
- 64-bit integers can exceed 2^53, beyond which JavaScript's \`JSON.parse\` rounds.
- Ignore unknown properties and names, which later versions may add.

Event types, with their numbers for \`process\` ([api.md](api.md#operations)):
`;

/** The content of docs/built-in-events.md, generated from the proto files. */
export function eventsDocument(): string {
  const payloads = eventTypes().map((entry) => entry.payload);
  const { messages, enums } = partsOf(payloads);
  const types = describeEventTypes();
  const overview = types.map(({ number, name }) => `- ${number}: ${link(name)}`).join("\n");
  const events = types.map(({ name, description, sample }, index) =>
    [
      `## ${name}`,
      description,
      fieldList(payloads[index] as DescMessage),
      `\`\`\`json\n${stringifyExactJson(parseExactJson(sample), 2)}\n\`\`\``,
    ].join("\n\n"),
  );
  const parts = [
    ...messages.map((desc) => [`## ${desc.name}`, commentOf(desc), fieldList(desc)]),
    ...enums.map((desc) => [`## ${desc.name}`, commentOf(desc), memberList(desc)]),
  ].map((lines) => lines.filter((line) => line !== undefined).join("\n\n"));
  return `${[INTRODUCTION, overview, ...events, ...parts].join("\n\n").replaceAll(/\n{3,}/g, "\n\n")}\n`;
}

/** The message and enum types used by payloads, each once, in order of first use. */
function partsOf(payloads: readonly DescMessage[]): { messages: DescMessage[]; enums: DescEnum[] } {
  const messages = new Set<DescMessage>(payloads);
  const enums = new Set<DescEnum>();
  // Iterating over a set includes items added meanwhile.
  for (const desc of messages) {
    for (const field of desc.fields) {
      if (field.enum) enums.add(field.enum);
      if (field.message && isPart(field.message)) messages.add(field.message);
    }
  }
  for (const payload of payloads) messages.delete(payload);
  return { messages: [...messages], enums: [...enums] };
}

function isPart(desc: DescMessage): boolean {
  return desc.typeName !== TIMESTAMP;
}

function fieldList(desc: DescMessage): string {
  return desc.fields
    .map((field) => {
      const type = propertyType(
        field,
        inWords((text) => `\`${text}\``),
        ({ name }) => link(name),
      );
      const meaning = [commentOf(field), choiceOf(field)].filter((text) => text !== undefined).join(" ");
      return item(`\`${propertyName(field)}\` (${type})`, meaning);
    })
    .join("\n");
}

function memberList(desc: DescEnum): string {
  return desc.values
    .filter((value) => desc.value[value.number] === value)
    .map((value) => {
      const meaning = commentOf(value) ?? (value.number === 0 ? "Not specified." : "");
      return item(`\`${enumMemberName(desc, value.number)}\``, meaning);
    })
    .join("\n");
}

function item(name: string, meaning: string): string {
  return meaning === "" ? `- ${name}` : `- ${name}: ${meaning.replaceAll(/\s*\n\s*/g, " ")}`;
}

function link(name: string): string {
  return `[${name}](#${name.toLowerCase()})`;
}

if (import.meta.main) process.exitCode = writeOrCheck("docs/built-in-events.md", eventsDocument());
