import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescOneof,
  fromJson,
  hasOption,
} from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { example, required } from "../../gen/webhook/v1/options_pb.ts";
import { fieldSample } from "../contract/event-types/sample.ts";
import { isMarked, TIMESTAMP } from "../contract/json/field-types.ts";
import { enumMemberName, propertyName } from "../contract/json/names.ts";
import { isRawJson } from "../contract/json/scalars.ts";
import { jsonWriter } from "../contract/json/writer.ts";
import { assertSearchable } from "../contract/searchable-values.ts";
import { OWN_FILES } from "./build.ts";
import type { Part, Report } from "./model.ts";

/** The maximum depth of messages within each other, a payload included. A message within itself does not count. */
const MAX_DEPTH = 64;
/**
 * The maximum number of fields of a payload and of the messages in it, each counted wherever it is. Samples and searches visit each, so
 * that messages that contain each other many times would take minutes.
 */
const MAX_FIELDS = 10_000;

const USE = "Use a message, a map or a scalar instead, with `optional` if it can be null";

/** Whether a field has a type of this service or of Protobuf that payloads cannot have. */
export function isOwn(type: DescMessage | DescEnum): boolean {
  return OWN_FILES.test(type.file.proto.name);
}

/** Checks a message or enum that event types consist of. */
export function checkPart(part: DescMessage | DescEnum, report: Report): void {
  if (part.kind === "enum") {
    for (const value of part.values)
      if (!enumMemberName(part, value.number)) report(value, "has no letter or digit", "Rename it");
    same(Object.values(part.value), ({ number }) => [`${enumMemberName(part, number)} in JSON`], report);
    return;
  }
  for (const field of part.fields) checkField(field, report);
  same([...part.fields, ...part.oneofs], namesOf, report);
}

/** The names that a member of a message has, each with where. */
function namesOf(member: DescField | DescOneof): string[] {
  const inCode = `${member.localName} in code`;
  if (member.kind === "oneof") return [inCode];
  const inProtobuf = [member.jsonName, member.name].map((name) => `${name} in Protobuf's JSON`);
  return [`${propertyName(member)} in JSON`, ...inProtobuf, ...(member.oneof ? [] : [inCode])];
}

function checkField(field: DescField, report: Report): void {
  const type = field.message ?? field.enum;
  if (type && isOwn(type) && type.typeName !== TIMESTAMP)
    report(field, `is a ${type.typeName}; of google.protobuf and webhook.v1 only Timestamp is allowed`, USE);
  if (field.presence === FeatureSet_FieldPresence.LEGACY_REQUIRED)
    report(field, "has the label required", "Use optional, with (webhook.v1.required) if it must be set");
  const name = propertyName(field);
  if (!/^[A-Z]/.test(name))
    report(field, `would be ${JSON.stringify(name)} in JSON`, "Rename it: a letter comes before digits");
  if (field.oneof && field.oneof.fields.length > 1 && isMarked(field, required))
    report(field, "is required, but at most one member of a oneof is set", "Remove (webhook.v1.required)");
  if (isRawJson(field))
    report(field, "raw_json is no option of event types", "Remove it, and use a message or a map");
  try {
    assertSearchable(field);
  } catch (error) {
    report(field, (error as Error).message, "Remove (webhook.v1.searchable), or use a text or an integer");
  }
}

/** Reports parts that share a name with an earlier one. */
function same<Each extends Part>(parts: readonly Each[], namesOf: (part: Each) => string[], report: Report) {
  const owners = new Map<string, Each>();
  for (const part of parts) {
    const name = namesOf(part).find((each) => owners.getOrInsertComputed(each, () => part) !== part);
    if (name === undefined) continue;
    report(part, `${owners.get(name)?.name} and ${part.name} would both be ${name}`, "Rename one of them");
  }
}

/** Checks that the example of a field, if it has one, fits its type and can be sent. */
export function checkExample(field: DescField, report: Report): void {
  const { parent, jsonName } = field;
  try {
    if (!hasOption(field, example)) return;
    jsonWriter(parent, "payload")(fromJson(parent, { [jsonName]: fieldSample(field, [parent]) }));
  } catch (error) {
    const problem = `the example does not fit the type: ${(error as Error).message}`;
    report(field, problem, "Correct (webhook.v1.example): a value as in Protobuf's JSON, without quotes");
  }
}

/** Checks the depth and the size of payloads, and that none needs itself. */
export function checkSizes(payloads: Iterable<DescMessage>, report: Report): void {
  const endless = new Set<DescField>();
  for (const payload of payloads) checkSize(payload, endless, report);
  for (const field of endless)
    report(
      field,
      "is required within itself, so that no event could have it",
      "Remove (webhook.v1.required)",
    );
}

/** @param endless gets required fields that contain themselves */
function checkSize(payload: DescMessage, endless: Set<DescField>, report: Report): void {
  const within = new Set<DescMessage>();
  let fields = 0;
  let depth = 0;
  /** @param needed the messages around it, as far in as each is set whenever the one around it is */
  const visit = (desc: DescMessage, needed: readonly DescMessage[]) => {
    within.add(desc);
    depth = Math.max(depth, within.size);
    for (const field of depth > MAX_DEPTH ? [] : desc.fields) {
      const { message } = field;
      if (++fields > MAX_FIELDS) break;
      if (!message || message.typeName === TIMESTAMP) continue;
      const around = isMarked(field, required) ? [...needed, desc] : [];
      if (around.includes(message)) endless.add(field);
      if (!within.has(message)) visit(message, around);
    }
    within.delete(desc);
  };
  visit(payload, []);
  if (depth > MAX_DEPTH)
    report(payload, `messages are nested deeper than the ${MAX_DEPTH} levels allowed`, "Nest fewer messages");
  if (fields > MAX_FIELDS)
    report(
      payload,
      `it has more than ${MAX_FIELDS} fields with those of its messages`,
      "Refer to objects by ids",
    );
}
