import { builtInTypes, FIRST_NOTICE, FIRST_REGISTERED } from "../contract/catalogue.ts";
import { type DeclaredMessage, eventTypeOption, importsOptions, placeOf } from "./declarations.ts";
import type { AddedType, Problems, StoredType } from "./model.ts";
import type { SourceFile } from "./read-set.ts";

/** The maximum number of event types, deprecated ones included. */
export const MAX_TYPES = 5_000;
const MAX_NAME = 100;
const LAST_REGISTERED = FIRST_NOTICE - 1;
const OPTION = "option (webhook.v1.event_type)";

/** An event type that a file of the set declares. */
export interface GivenType extends AddedType {
  declared: DeclaredMessage;
}

/** Reads the event types of given messages. @param files all files by path */
export function readTypes(
  messages: readonly DeclaredMessage[],
  files: ReadonlyMap<string, SourceFile>,
  problems: Problems,
): GivenType[] {
  const hasOptions = new Map<SourceFile, boolean>();
  return messages.flatMap((declared) => {
    if (!hasOptions.getOrInsertComputed(declared.file, (file) => importsOptions(file, files))) return [];
    try {
      const option = eventTypeOption(declared.proto);
      if (!option) return [];
      const { process, name, alias } = option;
      const number = process === 0 ? {} : { process };
      const named = { name: name || declared.proto.name, alias: alias || null, message: declared.name };
      return [{ ...number, ...named, declared }];
    } catch (error) {
      problems.add({
        ...placeOf(declared),
        problem: `${OPTION} cannot be read: ${(error as Error).message}`,
        remedy: "Compile the file with this service's webhook/v1/options.proto",
      });
      return [];
    }
  });
}

/** Checks given event types by themselves, with each other and with stored ones. */
export function checkTypes(
  given: readonly GivenType[],
  stored: readonly StoredType[],
  problems: Problems,
): void {
  const storedByMessage = new Map(stored.map((type) => [type.message, type]));
  const total = stored.length + given.filter(({ message }) => !storedByMessage.has(message)).length;
  if (total > MAX_TYPES)
    problems.add({
      file: "",
      subject: "",
      problem: `there would be ${total} event types, more than the ${MAX_TYPES} allowed`,
      remedy: "Register fewer event types; a message may carry several kinds of an event",
    });
  // What is taken, and by which message. Numbers and names are taken for good, so that nothing ever means something else.
  const taken = new Map<string, string>();
  const take = (key: string, message: string) => {
    const by = taken.get(key);
    if (by === undefined) taken.set(key, message);
    return by === message ? undefined : by;
  };
  for (const { name, payload } of builtInTypes) take(name.toLowerCase(), payload.typeName);
  for (const { process, name, alias, message } of stored)
    for (const key of [String(process), name, message, ...(alias === null ? [] : [alias])])
      take(key.toLowerCase(), message);
  for (const type of given) {
    const { declared, process, name, alias, message } = type;
    const add = (problem: string, remedy: string) => problems.add({ ...placeOf(declared), problem, remedy });
    const before = storedByMessage.get(message);
    if (before) checkUnchanged(type, before, add);
    else checkForm(type, add);
    if (alias !== null && alias !== before?.alias) checkAlias(alias, add);
    for (const [what, value] of [
      ["number", process],
      ["name", name],
      ["alias", alias],
      ["full name", message],
    ] as const) {
      if (value === undefined || value === null) continue;
      // Refused already; those of the service's own are outside of the range.
      if (what === "number" && !isInRange(process)) continue;
      const by = take(String(value).toLowerCase(), message);
      if (by === undefined) continue;
      add(
        `the ${what} ${value} is taken by ${by}; numbers and names are unique regardless of case, and never used again`,
        what === "full name" ? "Rename the message" : `Choose another ${what}: ${OPTION}`,
      );
    }
  }
}

function isInRange(process = 0): boolean {
  return process >= FIRST_REGISTERED && process <= LAST_REGISTERED;
}

type Add = (problem: string, remedy: string) => void;

function checkForm({ process, name }: GivenType, add: Add): void {
  if (process !== undefined && !isInRange(process))
    add(
      `the number ${process} is not in ${FIRST_REGISTERED} to ${LAST_REGISTERED}`,
      "Choose a number in this range, or leave process out to get the next one",
    );
  if (name.length > MAX_NAME || !/^[A-Z][A-Za-z0-9]*$/.test(name))
    add(
      `the name ${name} is not allowed: letters and digits, the first an upper-case letter, at most ${MAX_NAME}`,
      `Set a name such as InvoicePaid: ${OPTION} = {name: "InvoicePaid"}`,
    );
}

function checkAlias(alias: string, add: Add): void {
  if (!/^[a-z0-9._-]{1,100}$/.test(alias) || /^[0-9]+$/.test(alias))
    add(
      `the alias ${alias} is not allowed: 1 to 100 lower-case letters, digits, dots, hyphens and underscores, not digits alone`,
      "Choose an alias such as invoice.paid, or leave it out",
    );
}

function checkUnchanged({ process, name, alias }: GivenType, before: StoredType, add: Add): void {
  const never = "never changes";
  if (process !== undefined && process !== before.process)
    add(
      `the number is ${process}, but was registered as ${before.process}, and ${never}`,
      `Set process: ${before.process}, or leave it out`,
    );
  if (name !== before.name)
    add(
      `the name is ${name}, but was registered as ${before.name}, and ${never}`,
      `Set name: "${before.name}"`,
    );
  if (before.alias !== null && alias !== before.alias)
    add(
      `the alias is ${alias ?? "left out"}, but was registered as ${before.alias}, and ${never}`,
      `Set alias: "${before.alias}"`,
    );
}
