import { type DescEnum, type DescField, type DescMessage, fromJson, hasOption } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { example } from "../../gen/webhook/v1/options_pb.ts";
import { fieldSample } from "../contract/event-types/sample.ts";
import { TIMESTAMP } from "../contract/json/field-types.ts";
import { enumMemberName, propertyName } from "../contract/json/names.ts";
import { isRawJson } from "../contract/json/scalars.ts";
import { jsonWriter } from "../contract/json/writer.ts";
import { assertSearchable } from "../contract/searchable-values.ts";
import { type Declaration, type DeclaredMessage, ENUM_VALUES, IN_MESSAGE, placeOf } from "./declarations.ts";
import type { Problems } from "./model.ts";

/** The maximum depth of messages within each other, a payload included. A message within itself does not count. */
const MAX_DEPTH = 64;
/**
 * The maximum number of fields of a payload and of the messages in it, each counted wherever it is. Samples and searches visit each, so
 * that messages that contain each other many times would take minutes.
 */
const MAX_FIELDS = 10_000;

type Place = ReturnType<typeof placeOf>;

/** Checks the parts of payloads: messages and enums that event types consist of. */
export function checkParts(
  parts: Iterable<readonly [DescMessage | DescEnum, Declaration]>,
  problems: Problems,
): void {
  for (const [desc, declared] of parts)
    if (desc.kind === "enum") checkEnumNames(desc, declared, problems);
    else checkFields(desc, declared, problems);
}

function checkEnumNames(desc: DescEnum, declared: Declaration, problems: Problems): void {
  const members = Object.values(desc.value);
  for (const [json, [first, ...others]] of grouped(members, ({ number }) => [
    enumMemberName(desc, number) as string,
  ]))
    for (const value of others)
      problems.add({
        ...placeOf(declared, { name: value.name, path: [ENUM_VALUES, desc.values.indexOf(value)] }),
        problem: `${first?.name} and ${value.name} would both be ${json} in JSON`,
        remedy: "Rename one of them",
      });
}

function checkFields(desc: DescMessage, declared: Declaration, problems: Problems): void {
  const placeOfPart = (part: { name: string; kind: string }): Place => {
    const [number, index] =
      part.kind === "field"
        ? [IN_MESSAGE.fields, desc.fields.indexOf(part as DescField)]
        : [IN_MESSAGE.oneofs, desc.proto.oneofDecl.findIndex(({ name }) => name === part.name)];
    return placeOf(declared, { name: part.name, path: [number, index] });
  };
  for (const field of desc.fields) {
    const add = (problem: string, remedy: string) => problems.add({ ...placeOfPart(field), problem, remedy });
    if (field.presence === FeatureSet_FieldPresence.LEGACY_REQUIRED)
      add("has the label required", "Use optional, with the option (webhook.v1.required) if it must be set");
    if (isRawJson(field))
      add("raw_json is no option of event types", "Remove it, and use a message or a map");
    try {
      assertSearchable(field);
    } catch (error) {
      add((error as Error).message, "Remove (webhook.v1.searchable), or use a text or an integer");
    }
  }
  const reported = new Set<object>();
  const same = (names: ReturnType<typeof namesOf>, where: string) => {
    for (const [name, [first, ...others]] of grouped(names, (each) => each.names))
      for (const { part } of others) {
        if (reported.has(part)) continue;
        reported.add(part);
        problems.add({
          ...placeOfPart(part),
          problem: `${first?.part.name} and ${part.name} would both be ${name} ${where}`,
          remedy: "Rename one of them",
        });
      }
  };
  same(
    namesOf(desc.fields, (field) => [propertyName(field)]),
    "in JSON",
  );
  same(
    namesOf(desc.fields, (field) => [field.jsonName, field.name]),
    "in Protobuf's JSON",
  );
  same(
    namesOf([...desc.fields.filter(({ oneof }) => !oneof), ...desc.oneofs], (each) => [each.localName]),
    "in code",
  );
}

function namesOf<Part extends { name: string; kind: string }>(
  parts: readonly Part[],
  names: (part: Part) => string[],
): { part: { name: string; kind: string }; names: string[] }[] {
  return parts.map((part) => ({ part, names: [...new Set(names(part))] }));
}

/** The items that share a name, by it. */
function grouped<Item>(items: readonly Item[], names: (item: Item) => string[]): Map<string, Item[]> {
  const groups = new Map<string, Item[]>();
  for (const item of items)
    for (const name of names(item)) groups.getOrInsertComputed(name, () => []).push(item);
  return groups;
}

/** Checks that the examples of fields fit their types. @param parts what `checkParts` found nothing wrong with */
export function checkExamples(
  parts: Iterable<readonly [DescMessage | DescEnum, Declaration]>,
  problems: Problems,
): void {
  for (const [desc, declared] of parts) {
    if (desc.kind === "enum") continue;
    for (const [index, field] of desc.fields.entries()) {
      if (!hasOption(field, example)) continue;
      try {
        writeExample(field);
      } catch (error) {
        problems.add({
          ...placeOf(declared, { name: field.name, path: [IN_MESSAGE.fields, index] }),
          problem: `the example does not fit the type: ${(error as Error).message}`,
          remedy: "Correct (webhook.v1.example): a value as in Protobuf's JSON, without quotes",
        });
      }
    }
  }
}

/** @throws Error if a field's example cannot be sent */
function writeExample(field: DescField): void {
  const { parent, jsonName } = field;
  const message = fromJson(parent, { [jsonName]: fieldSample(field, [parent]) });
  jsonWriter(parent, "payload")(message);
}

/** Checks the depth and the size of a payload. */
export function checkSize(payload: DescMessage, declared: DeclaredMessage, problems: Problems): void {
  const within = new Set<DescMessage>();
  let fields = 0;
  let depth = 0;
  const visit = (desc: DescMessage) => {
    within.add(desc);
    depth = Math.max(depth, within.size);
    for (const { message } of depth > MAX_DEPTH ? [] : desc.fields) {
      if (++fields > MAX_FIELDS) break;
      if (message && message.typeName !== TIMESTAMP && !within.has(message)) visit(message);
    }
    within.delete(desc);
  };
  visit(payload);
  if (depth > MAX_DEPTH)
    problems.add({
      ...placeOf(declared),
      problem: `messages are nested deeper than the ${MAX_DEPTH} levels allowed`,
      remedy: "Nest fewer messages",
    });
  if (fields > MAX_FIELDS)
    problems.add({
      ...placeOf(declared),
      problem: `it has more than ${MAX_FIELDS} fields, those of the messages in it counted wherever they are`,
      remedy: "Use a message in fewer places, or refer to other objects by their ids",
    });
}
