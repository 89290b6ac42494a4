import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type FileRegistry,
  getOption,
  hasOption,
} from "@bufbuild/protobuf";
import { example, required, searchable } from "../../gen/webhook/v1/options_pb.ts";
import { type Commented, commentOf } from "../contract/comments.ts";
import { TIMESTAMP } from "../contract/json/field-types.ts";
import { type Declaration, placeOfField } from "./declarations.ts";
import type { Problems } from "./model.ts";

/** The maximum number of changes of an event type that are listed. */
const MAX_CHANGES = 50;

/** The messages and enums that a payload consists of, itself first. */
export function partsOf(payload: DescMessage): Set<DescMessage | DescEnum> {
  const parts = new Set<DescMessage | DescEnum>([payload]);
  // Iterating over a set includes items added meanwhile.
  for (const part of parts)
    for (const field of part.kind === "message" ? part.fields : []) {
      const used = field.message ?? field.enum;
      if (used && used.typeName !== TIMESTAMP) parts.add(used);
    }
  return parts;
}

/** Whether the option `required` is set on a field. */
function isRequired(field: DescField): boolean {
  return hasOption(field, required) && getOption(field, required);
}

/** Finds changes of this service's options that break receivers or publishers. @param before the stored files */
export function findOptionChanges(
  before: FileRegistry,
  after: FileRegistry,
  symbols: ReadonlyMap<string, Declaration>,
  problems: Problems,
): void {
  for (const now of after) {
    const old = before.getMessage(now.typeName);
    const declared = symbols.get(now.typeName);
    if (now.kind !== "message" || !old || declared?.kind !== "message") continue;
    const oldFields = fieldsByNumber(old);
    for (const field of now.fields) {
      const oldField = oldFields.get(field.number);
      const place = placeOfField(declared, field.proto);
      if (isRequired(field) && !oldField)
        problems.add({
          ...place,
          problem: "a new field is required, so publishers that do not know it are refused",
          remedy: "Remove (webhook.v1.required)",
        });
      else if (isRequired(field) && oldField && !isRequired(oldField))
        problems.add({
          ...place,
          problem: "the field was not required and is now, so publishers that leave it out are refused",
          remedy: "Remove (webhook.v1.required)",
        });
      else if (oldField && isRequired(oldField) && !isRequired(field))
        problems.add({
          ...place,
          problem: "the field was required and is not any more, so receivers could get none",
          remedy: "Keep (webhook.v1.required) = true",
        });
    }
  }
}

function fieldsByNumber(desc: DescMessage): Map<number, DescField> {
  return new Map(desc.fields.map((field) => [field.number, field]));
}

/** Says in words how payloads change. The changes of a message or enum are found once. */
export class Changes {
  readonly #before: FileRegistry;
  readonly #known = new Map<string, string[]>();

  /** @param before the stored files */
  constructor(before: FileRegistry) {
    this.#before = before;
  }

  /** The changes of a payload that was registered before. At most 50 are listed, and the number of the others. */
  of(payload: DescMessage): string[] {
    const changes = [...partsOf(payload)].flatMap((part) => {
      const words = this.#known.getOrInsertComputed(part.typeName, () => this.#ofPart(part));
      return part === payload ? words : words.map((each) => `${part.name}: ${each}`);
    });
    const more = changes.length - MAX_CHANGES;
    return more > 0 ? [...changes.slice(0, MAX_CHANGES), `and ${more} more`] : changes;
  }

  #ofPart(part: DescMessage | DescEnum): string[] {
    if (part.kind === "enum") {
      const old = this.#before.getEnum(part.typeName);
      if (!old) return [];
      const names = new Map(old.values.map((value) => [value.name, value]));
      return [
        ...descriptionChange(old, part),
        ...part.values.flatMap((value) => {
          const oldValue = names.get(value.name);
          if (!oldValue) return [`value ${value.name} added`];
          return descriptionChange(oldValue, value).map((each) => `value ${value.name}: ${each}`);
        }),
      ];
    }
    const old = this.#before.getMessage(part.typeName);
    if (!old) return [];
    const fields = fieldsByNumber(old);
    return [
      ...descriptionChange(old, part),
      ...part.fields.flatMap((field) => {
        const oldField = fields.get(field.number);
        if (!oldField) return [`field ${field.name} added`];
        const words = [...descriptionChange(oldField, field), ...optionChanges(oldField, field)];
        return words.map((each) => `field ${field.name}: ${each}`);
      }),
      ...part.oneofs.flatMap((oneof) => {
        const oldOneof = old.oneofs.find(({ name }) => name === oneof.name);
        if (!oldOneof) return [`oneof ${oneof.name} added`];
        return descriptionChange(oldOneof, oneof).map((each) => `oneof ${oneof.name}: ${each}`);
      }),
    ];
  }
}

function descriptionChange(before: Commented, after: Commented): string[] {
  return commentOf(before) === commentOf(after) ? [] : ["description changed"];
}

function optionChanges(before: DescField, after: DescField): string[] {
  const [wasSearchable, isSearchable] = [before, after].map(
    (field) => hasOption(field, searchable) && getOption(field, searchable),
  );
  const [oldExample, newExample] = [before, after].map((field) =>
    hasOption(field, example) ? getOption(field, example) : undefined,
  );
  return [
    ...(wasSearchable === isSearchable
      ? []
      : [isSearchable ? "is now searchable" : "is no longer searchable"]),
    ...(oldExample === newExample ? [] : ["example changed"]),
  ];
}
