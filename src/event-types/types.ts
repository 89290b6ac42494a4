import { type DescMessage, getExtension, hasExtension } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import { event_type } from "../../gen/webhook/v1/options_pb.ts";
import { builtInTypes, FIRST_NOTICE, FIRST_REGISTERED } from "../contract/catalogue.ts";
import type { AddedType, Report, StoredType } from "./model.ts";

/** The maximum number of event types, deprecated ones included. */
const MAX_TYPES = 5_000;
const LAST_REGISTERED = FIRST_NOTICE - 1;
const OPTION = "option (webhook.v1.event_type)";

/** An event type that a file of the set declares. */
export interface GivenType extends AddedType {
  payload: DescMessage;
}

/** Reads the event types of messages. */
export function readTypes(messages: readonly DescMessage[], report: Report): GivenType[] {
  return messages.flatMap((payload) => {
    const { options } = payload.proto;
    if (!options) return [];
    try {
      if (!hasExtension(options, event_type)) return [];
      const isMessage = ({ no, wireType }: { no: number; wireType: number }) =>
        no === event_type.number && wireType === WireType.LengthDelimited;
      // Otherwise, it would be read as an option without anything in it.
      if (!options.$unknown?.some(isMessage)) throw new Error("it is no message");
      const { process, name, alias } = getExtension(options, event_type);
      const named = { name: name || payload.name, alias: alias || null, message: payload.typeName };
      return [{ ...(process === 0 ? {} : { process }), ...named, payload }];
    } catch (error) {
      report(
        payload,
        `${OPTION} cannot be read: ${(error as Error).message}`,
        "Use this service's options.proto",
      );
      return [];
    }
  });
}

/** What identifies an event type: its name in options, which texts it may be, in words, and what to do. */
const IDENTIFIERS = [
  {
    key: "process",
    isAllowed: (text: string) => Number(text) >= FIRST_REGISTERED && Number(text) <= LAST_REGISTERED,
    allowed: `in ${FIRST_REGISTERED} to ${LAST_REGISTERED}`,
    remedy: "Choose another number, or leave process out to get the next one",
  },
  {
    key: "name",
    isAllowed: (text: string) => /^[A-Z][A-Za-z0-9]{0,99}$/.test(text),
    allowed: "allowed: letters and digits, the first an upper-case letter, at most 100",
    remedy: `Choose another name: ${OPTION} = {name: "InvoicePaid"}`,
  },
  {
    key: "alias",
    isAllowed: (text: string) => /^(?!\d+$)[a-z0-9._-]{1,100}$/.test(text),
    allowed: "allowed: 1 to 100 lower-case letters, digits, dots, hyphens and underscores, not digits alone",
    remedy: "Choose another alias, such as invoice.paid, or leave it out",
  },
  {
    key: "message",
    isAllowed: (text: string) => text.length <= 500,
    allowed: "allowed: at most 500 characters",
    remedy: "Rename the message",
  },
] as const;

/** Checks given event types by themselves, with each other and with stored ones. */
export function checkTypes(given: readonly GivenType[], stored: readonly StoredType[], report: Report): void {
  const storedByMessage = new Map(stored.map((type) => [type.message, type]));
  const total = stored.length + given.filter(({ message }) => !storedByMessage.has(message)).length;
  if (total > MAX_TYPES)
    report(undefined, `${total} event types are more than the ${MAX_TYPES} allowed`, "Register fewer");
  // What is taken, and by which message. Numbers and names are taken for good, so that nothing ever means something else.
  const taken = new Map(builtInTypes.map(({ name, payload }) => [name.toLowerCase(), payload.typeName]));
  for (const { process, name, alias, message } of stored)
    for (const each of [process, name, alias ?? name, message])
      taken.set(String(each).toLowerCase(), message);
  for (const type of given)
    for (const { key, isAllowed, allowed, remedy } of IDENTIFIERS) {
      const [value, old] = [type[key], storedByMessage.get(type.message)?.[key] ?? undefined];
      if (old !== undefined && value !== old && value !== undefined)
        report(
          type.payload,
          `the ${key} is ${value ?? "left out"}, but was registered as ${old}, and never changes`,
          `Set ${key}: ${JSON.stringify(old)}`,
        );
      if (value === undefined || value === null) continue;
      if (old === undefined && !isAllowed(String(value)))
        report(type.payload, `the ${key} ${value} is not ${allowed}`, remedy);
      const by = taken.getOrInsert(String(value).toLowerCase(), type.message);
      if (by !== type.message)
        report(
          type.payload,
          `the ${key} ${value} is taken by ${by}; each is unique regardless of case, and never used again`,
          remedy,
        );
    }
}
