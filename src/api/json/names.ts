import type { DescEnum, DescField } from "@bufbuild/protobuf";
import { pascalCase } from "../../contract/catalogue.ts";

/** The name of a field in JSON: `order_id` → `OrderId`. */
export function propertyName(field: DescField): string {
  // Only the first letters change: linted files have no others in capitals.
  return field.name
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}

/** `DOCUMENT_KIND_CREDIT_NOTE` → `CreditNote`; undefined for a number the enum does not have. */
export function enumMemberName(desc: DescEnum, number: number): string | undefined {
  const name = desc.value[number]?.name;
  if (name === undefined) return undefined;
  const prefix = desc.sharedPrefix?.toUpperCase() ?? "";
  return pascalCase(name.startsWith(prefix) ? name.slice(prefix.length) : name);
}

/** The names of an enum's members as callers send them, without that of zero, which stands for an unset field. */
export function enumChoices(desc: DescEnum): string[] {
  return desc.values.filter(({ number }) => number !== 0).map(({ name }) => name);
}

/**
 * Sees to it that nothing in a message or enum shares its name in JSON with something else.
 *
 * @param owner what they belong to, for the message
 * @throws Error saying which to rename
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
