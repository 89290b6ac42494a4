import type { DescEnum, DescMessage } from "@bufbuild/protobuf";
import type { CatalogueEntry } from "../catalogue.ts";
import { TIMESTAMP } from "../json/field-types.ts";
import { pascalCase } from "../json/names.ts";

/** A message or enum of payloads, and its name in generated types. */
export interface NamedType {
  desc: DescMessage | DescEnum;
  name: string;
}

/** The name of a message or enum in generated types. */
export type NameOf = (desc: DescMessage | DescEnum) => string;

/**
 * The messages and enums of the payloads of event types, each once: what a type refers to comes first, unless it is recursive. A payload has the
 * name of its event type, others have that of their message, with that of their package before it if two would have the same.
 *
 * @param reserved names that no type may have
 */
export function typesOf(entries: readonly CatalogueEntry[], reserved: readonly string[]) {
  const found = new Set<DescMessage | DescEnum>();
  const entered = new Set<DescMessage>();
  const visit = (desc: DescMessage) => {
    if (entered.has(desc)) return;
    entered.add(desc);
    for (const { message, enum: members } of desc.fields) {
      if (members) found.add(members);
      if (message && message.typeName !== TIMESTAMP) visit(message);
    }
    found.add(desc);
  };
  for (const { payload } of entries) visit(payload);
  const eventNames = new Map(entries.map(({ payload, name }) => [payload as DescMessage | DescEnum, name]));
  const taken = new Set([...reserved, ...eventNames.values()].map((name) => name.toLowerCase()));
  const types = Array.from(found, (desc): NamedType => {
    return { desc, name: eventNames.get(desc) ?? freeName(desc, taken) };
  });
  const names = new Map(types.map(({ desc, name }) => [desc, name]));
  const nameOf: NameOf = (desc) => names.get(desc) as string;
  return { types, nameOf };
}

/** A name that nothing else has, regardless of case, because file names and some readers ignore case. */
function freeName(desc: DescMessage | DescEnum, taken: Set<string>): string {
  const inPackage = desc.typeName
    .slice(desc.file.proto.package.length)
    .replace(/^\./, "")
    .replaceAll(".", "_");
  const whole = desc.typeName
    .split(".")
    .map((part) => (/[A-Z]/.test(part) ? part : pascalCase(part)))
    .join("_");
  const name = [inPackage, whole].find((each) => !taken.has(each.toLowerCase())) ?? `${whole}_${taken.size}`;
  taken.add(name.toLowerCase());
  return name;
}
