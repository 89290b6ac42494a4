import type { GenEnum } from "@bufbuild/protobuf/codegenv2";

/**
 * The numbers of an enum's members by their names in the database: in lower case, without the prefix. Leaves out 0, which means
 * unspecified.
 */
export function numbersOf<Name extends string, Value extends number>(
  desc: GenEnum<Value>,
): Record<Name, Value> {
  const members = desc.values.filter(({ number }) => number !== 0);
  return Object.fromEntries(
    members.map(({ localName, number }) => [localName.toLowerCase(), number]),
  ) as Record<Name, Value>;
}

/** The name of a number in `numbers`; undefined if there is none. */
export function nameOf<Name extends string>(
  numbers: Readonly<Record<Name, number>>,
  number: number,
): Name | undefined {
  return (Object.keys(numbers) as Name[]).find((name) => numbers[name] === number);
}
