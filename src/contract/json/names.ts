import type { DescEnum, DescField } from "@bufbuild/protobuf";

/** `ORDER_DISPATCHED` or `order_dispatched` → `OrderDispatched`. */
export function pascalCase(name: string): string {
  return name
    .toLowerCase()
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}

/** The JSON name of a field: `order_id` → `OrderId`. */
export function propertyName(field: DescField): string {
  // Changes only first letters, because linted proto names contain no other capitals.
  return field.name
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}

/** A member of an enum that its proto file does not have. */
interface AddedMember {
  number: number;
  /** As JSON has it: `InvoicePaid`. */
  name: string;
}

const added = new Map<string, ReadonlyMap<number, string>>();

/** Replaces what an enum has in addition to the members of its proto file, in this process. */
export function setAddedMembers({ typeName }: DescEnum, members: readonly AddedMember[]): void {
  added.set(typeName, new Map(members.map(({ number, name }) => [number, name])));
}

/** `DOCUMENT_KIND_CREDIT_NOTE` → `CreditNote`; undefined for an unknown number. */
export function enumMemberName(desc: DescEnum, number: number): string | undefined {
  const name = desc.value[number]?.name;
  if (name === undefined) return added.get(desc.typeName)?.get(number);
  const prefix = desc.sharedPrefix?.toUpperCase() ?? "";
  return pascalCase(name.startsWith(prefix) ? name.slice(prefix.length) : name);
}

/** The names of an enum's members as callers send them, without the zero value, which means unset. */
export function enumChoices(desc: DescEnum): string[] {
  return desc.values.filter(({ number }) => number !== 0).map(({ name }) => name);
}

/**
 * Checks that JSON names within a message or enum are unique.
 *
 * @param owner the message or enum, for the error
 * @throws Error that names the fields to rename
 */
export function assertDistinct(owner: string, names: readonly { proto: string; json: string }[]): void {
  const seen = new Map<string, string>();
  for (const { proto, json } of names) {
    const other = seen.get(json);
    if (other !== undefined) {
      throw new Error(`${owner}: ${other} and ${proto} would both be ${json} in JSON; rename one of them`);
    }
    seen.set(json, proto);
  }
}
