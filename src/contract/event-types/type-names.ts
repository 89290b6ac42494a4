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
 * name of its event type, others have that of their message, with that of their package before it if two would have the same. The first letter
 * is an upper-case one, as in no word of TypeScript's or Python's but `None`, `True` and `False`.
 *
 * @param reserved names that no type may have. A payload with one is called `…Payload`
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
  const taken = new Set([...reserved, ...entries.map(({ name }) => name)].map((name) => name.toLowerCase()));
  const isReserved = new Set(reserved.map((name) => name.toLowerCase()));
  const names = new Map<DescMessage | DescEnum, string>();
  for (const { payload, name } of entries)
    names.set(payload, isReserved.has(name.toLowerCase()) ? freeName([`${name}Payload`], taken) : name);
  const types = Array.from(found, (desc): NamedType => {
    return { desc, name: names.getOrInsertComputed(desc, () => freeName(namesOf(desc), taken)) };
  });
  const nameOf: NameOf = (desc) => names.get(desc) as string;
  return { types, nameOf };
}

/** The names that a part of payloads can have. */
function namesOf(desc: DescMessage | DescEnum): string[] {
  const inPackage = desc.typeName
    .slice(desc.file.proto.package.length)
    .replace(/^\./, "")
    .replaceAll(".", "_");
  const whole = desc.typeName
    .split(".")
    .map((part) => (/[A-Z]/.test(part) ? part : pascalCase(part)))
    .join("_");
  return [inPackage, whole].map((name) => name.charAt(0).toUpperCase() + name.slice(1));
}

/** A name that nothing else has, regardless of case, because file names and some readers ignore case. */
function freeName(names: readonly string[], taken: Set<string>): string {
  const name = names.find((each) => !taken.has(each.toLowerCase())) ?? `${names.at(-1)}_${taken.size}`;
  taken.add(name.toLowerCase());
  return name;
}
