import { type DescEnum, type DescMessage, type FileRegistry, getOption, hasOption } from "@bufbuild/protobuf";
import { example, required, searchable } from "../../gen/webhook/v1/options_pb.ts";
import { commentOf } from "../contract/comments.ts";
import { isMarked } from "../contract/json/field-types.ts";
import { nameOf, type Part, type Report } from "./model.ts";
import { isOwn } from "./payloads.ts";

/** The maximum number of changes of an event type that are listed. */
const MAX_CHANGES = 50;

/** What breaks if the option `required` was and is something. */
const REQUIRED: Readonly<Record<string, string>> = {
  "undefined true": "a new field is required, so publishers that do not know it are refused",
  "false true": "the field was not required and is now, so publishers that leave it out are refused",
  "true false": "the field was required and is not any more, so receivers could get none",
};

/** Finds changes of this service's options that break receivers or publishers. */
export function checkOptions(before: DescMessage, after: DescMessage, report: Report): void {
  const fields = new Map(before.fields.map((field) => [field.number, isMarked(field, required)]));
  for (const field of after.fields) {
    const problem = REQUIRED[`${fields.get(field.number)} ${isMarked(field, required)}`];
    if (problem) report(field, problem, "Keep (webhook.v1.required) as it was, and new fields without it");
  }
}

/** What changes of a declaration are named by, and what is compared. */
const ASPECTS: Readonly<Record<string, (part: Part) => unknown>> = {
  description: commentOf,
  searchable: (part) => part.kind === "field" && isMarked(part, searchable),
  example: (part) => part.kind === "field" && hasOption(part, example) && getOption(part, example),
};

/** Says in words how payloads change. @param before the stored files @returns at most 50 changes, and the number of the others */
export function changesBetween(before: FileRegistry): (payload: DescMessage) => string[] {
  const known = new Map<DescMessage | DescEnum, string[]>();
  const changesOf = (desc: DescMessage | DescEnum) => {
    const previous = before.get(desc.typeName) as typeof desc | undefined;
    const old = new Map(partsOf(previous).map((part) => [nameOf(part), part]));
    if (old.size === 0) return [];
    return partsOf(desc).flatMap((part) => {
      const was = old.get(nameOf(part));
      const subject = part === desc ? "" : `${part.kind === "enum_value" ? "value" : part.kind} ${part.name}`;
      if (!was) return [`${subject} added`];
      return Object.entries(ASPECTS).flatMap(([name, aspect]) =>
        aspect(was) === aspect(part) ? [] : [`${subject && `${subject}: `}${name} changed`],
      );
    });
  };
  return (payload) => {
    const changes = [...usedBy(payload)].flatMap((desc) => {
      const words = known.getOrInsertComputed(desc, changesOf);
      return desc === payload ? words : words.map((each) => `${desc.name}: ${each}`);
    });
    const more = changes.length - MAX_CHANGES;
    return more > 0 ? [...changes.slice(0, MAX_CHANGES), `and ${more} more`] : changes;
  };
}

function partsOf(desc: DescMessage | DescEnum | undefined): Part[] {
  if (!desc) return [];
  return desc.kind === "enum" ? [desc, ...desc.values] : [desc, ...desc.fields, ...desc.oneofs];
}

/** The messages and enums that a payload consists of, itself first. */
function usedBy(payload: DescMessage): Set<DescMessage | DescEnum> {
  const used = new Set<DescMessage | DescEnum>([payload]);
  // Iterating over a set includes items added meanwhile.
  for (const each of used)
    for (const { message, enum: values } of each.kind === "message" ? each.fields : []) {
      const type = message ?? values;
      if (type && !isOwn(type)) used.add(type);
    }
  return used;
}
