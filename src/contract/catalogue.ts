import type { DescEnum, DescField, DescMessage } from "@bufbuild/protobuf";
import { PublishEventRequestSchema, WebhookProcessSchema } from "../../gen/webhook/v1/event_pb.ts";
import { NoticeSchema } from "../../gen/webhook/v1/notice_pb.ts";
import { assertJsonField, TIMESTAMP } from "./json/field-types.ts";
import { pascalCase, setAddedMembers } from "./json/names.ts";
import { collectorOf } from "./searchable-values.ts";

/**
 * The first number of a notice: an event type of the service itself, which callers cannot publish. Smaller numbers are
 * left to the events of callers.
 */
export const FIRST_NOTICE = 10_001;

/** The users of the service's own events about what is the operator's: of notices, and of test events. No customer may have these names. */
export const OWN_USERS = { notices: "service", tests: "test" };

/** An event type. */
export interface CatalogueEntry {
  /** Its number, as REST sends it: a WebhookProcess, or that of a registered event type. */
  number: number;
  /** `OrderDispatched`, as REST returns it. */
  name: string;
  /** What the operator calls a registered event type, such as `invoice.paid`. */
  alias?: string;
  /** Of a built-in event type, the member of PublishEventRequest.data or Notice.data that carries it: `order_dispatched`. */
  field?: string;
  /** The full name of the message that its receivers get. */
  message: string;
  /** The message itself. That of a registered event type is built when it is used first. */
  payload: DescMessage;
  /** Whether no new webhooks are registered for it. Defaults to false. */
  deprecated?: boolean;
}

/** An event type of the proto files of this service. */
export type BuiltInEntry = CatalogueEntry & { field: string };

/** Whether the number of an event type is that of a notice. */
export function isNotice(number: number): boolean {
  return number >= FIRST_NOTICE;
}

/** The first number of a registered event type. Smaller ones are left to this service. */
export const FIRST_REGISTERED = 1_000;

/** Whether the number of an event type is that of one that an operator has registered. */
export function isRegistered(number: number): boolean {
  return number >= FIRST_REGISTERED && !isNotice(number);
}

/**
 * The event types that an enum and the oneofs `data` of a request and of notices declare together, in the order of their
 * numbers.
 *
 * @throws Error naming what one of them has and the others have not, or a field whose type payloads cannot have
 */
export function readCatalogue(
  processes: DescEnum,
  request: DescMessage,
  notice: DescMessage,
): BuiltInEntry[] {
  const [requestMembers, noticeMembers] = [membersOf(request), membersOf(notice)];
  const entries = processes.values
    .filter((value) => value.number !== 0)
    .map((value) => {
      const field = value.name.slice("WEBHOOK_PROCESS_".length).toLowerCase();
      const [members, of] = isNotice(value.number) ? [noticeMembers, notice] : [requestMembers, request];
      const payload = members.get(field)?.message;
      if (!payload)
        throw new Error(`${value.name} has no payload: add a message ${field} to ${of.name}.data`);
      assertJsonFields(payload);
      // Throws for a field of a type that is not searched.
      collectorOf(payload);
      members.delete(field);
      const { typeName: message } = payload;
      return { number: value.number, name: pascalCase(field), field, message, payload };
    });
  for (const [members, of] of [
    [requestMembers, request],
    [noticeMembers, notice],
  ] as const) {
    const [left] = members.keys();
    if (left === undefined) continue;
    const number = of === notice ? `, with a number from ${FIRST_NOTICE},` : "";
    throw new Error(
      `${of.name}.data.${left} has no event type: add WEBHOOK_PROCESS_${left.toUpperCase()}${number} to ${processes.name}`,
    );
  }
  return entries.sort((a, b) => a.number - b.number);
}

/** Checks the fields of a payload and of the messages in it. */
function assertJsonFields(payload: DescMessage): void {
  const messages = new Set([payload]);
  // Iterating over a set includes items added meanwhile.
  for (const { fields } of messages)
    for (const field of fields) {
      assertJsonField(field);
      if (field.message && field.message.typeName !== TIMESTAMP) messages.add(field.message);
    }
}

/** The members of PublishEventRequest.data that carry an event of any event type. */
const OF_ANY_TYPE: readonly string[] = ["event", "json_event"];

/** The members of the oneof `data` with a payload of their own. */
function membersOf(message: DescMessage): Map<string, DescField> {
  const members = message.fields.filter(
    (field) => field.oneof?.name === "data" && !OF_ANY_TYPE.includes(field.name),
  );
  return new Map(members.map((field) => [field.name, field]));
}

/** The event types of the proto files of this service, in the order of their numbers. */
export const builtInTypes: readonly BuiltInEntry[] = readCatalogue(
  WebhookProcessSchema,
  PublishEventRequestSchema,
  NoticeSchema,
);

/** The event types that this process knows, by each of what identifies them. Replaced as a whole. */
interface Catalogue {
  all: readonly CatalogueEntry[];
  /** Also those that are hidden. */
  byNumber: ReadonlyMap<number, CatalogueEntry>;
  /** By name, and by alias. */
  byName: ReadonlyMap<string, CatalogueEntry>;
  /** Those that are hidden. */
  hidden: ReadonlySet<number>;
  /** By the full name of the payload message. */
  byMessage: ReadonlyMap<string, CatalogueEntry>;
}

function catalogueOf(entries: readonly CatalogueEntry[], hiddenNumbers: readonly number[] = []): Catalogue {
  const known = entries.toSorted((a, b) => a.number - b.number);
  const hidden = new Set(hiddenNumbers);
  const all = known.filter(({ number }) => !hidden.has(number));
  return {
    all,
    hidden,
    byNumber: new Map(known.map((entry) => [entry.number, entry])),
    byName: new Map(
      all.flatMap((entry) =>
        [entry.name, ...(entry.alias === undefined ? [] : [entry.alias])].map((name) => [name, entry]),
      ),
    ),
    byMessage: new Map(all.map((entry) => [entry.message, entry])),
  };
}

// One for the process: a process serves one database, which has one catalogue.
let current = catalogueOf(builtInTypes);

/**
 * Replaces the registered event types that this process knows.
 *
 * @param hidden the numbers of built-in event types that are not offered: only `eventType` and `processName` know them. Defaults to none
 */
export function setRegisteredTypes(
  registered: readonly CatalogueEntry[],
  hidden: readonly number[] = [],
): void {
  current = catalogueOf([...builtInTypes, ...registered], hidden);
  setAddedMembers(WebhookProcessSchema, registered);
}

/** Whether an event type is offered: this process knows it, and it is not hidden. */
export function isOffered(number: number): boolean {
  return current.byNumber.has(number) && !current.hidden.has(number);
}

/** Every event type that is offered, in the order of its number. */
export function eventTypes(): readonly CatalogueEntry[] {
  return current.all;
}

/** Returns a function that makes something of the event types once for each catalogue: it makes it again when they have changed. */
export function perCatalogue<T>(make: (types: readonly CatalogueEntry[]) => T): () => T {
  let made: { of: readonly CatalogueEntry[]; value: T } | undefined;
  return () => {
    const of = eventTypes();
    if (made?.of !== of) made = { of, value: make(of) };
    return made.value;
  };
}

/** The event type of a number. Undefined if this process does not know it. */
export function eventType(number: number): CatalogueEntry | undefined {
  return current.byNumber.get(number);
}

/** The event type of a name or alias. Undefined if this process does not know it. */
export function eventTypeNamed(name: string): CatalogueEntry | undefined {
  return current.byName.get(name);
}

/** The event type whose payload is a message, by the full name of the message. Undefined if this process does not know it. */
export function eventTypeOfMessage(typeName: string): CatalogueEntry | undefined {
  return current.byMessage.get(typeName);
}

/** Whether an enum is that of the event types, which has members for the built-in ones only. */
export function isProcessEnum({ typeName }: DescEnum): boolean {
  return typeName === WebhookProcessSchema.typeName;
}

/** The maximum number of event types that an error lists. */
const MAX_LISTED = 50;

/** A list for errors, and how many more there are. */
function listed<T>(all: readonly T[], text: (item: T) => string): string {
  const more = all.length - MAX_LISTED;
  return all.slice(0, MAX_LISTED).map(text).join(", ") + (more > 0 ? `, and ${more} more` : "");
}

/** The event types for errors: `1 (OrderDispatched), 1004 (InvoicePaid, invoice.paid)`. */
export function processChoices(): string {
  const choices = listed(
    eventTypes(),
    ({ number, name, alias }) => `${number} (${alias === undefined ? name : `${name}, ${alias}`})`,
  );
  return eventTypes().length > MAX_LISTED ? `${choices}, which ListProcesses lists` : choices;
}

/** The names of some event types for errors: `OrderDispatched, InvoicePaid`. */
export function processNames(processes: readonly number[]): string {
  return listed(processes, processName);
}

/** The name of a process for people and for REST; its number as text when this process does not know it. */
export function processName(number: number): string {
  return eventType(number)?.name ?? String(number);
}

const byField = new Map(builtInTypes.map((entry) => [entry.field, entry]));

/** The process whose payload a member of PublishEventRequest.data carries, by the member's name in the proto. */
export function processOfField(field: string): number | undefined {
  return byField.get(field)?.number;
}

/** The members of PublishEventRequest.data, as the proto names them. */
export const payloadFields: readonly string[] = [
  ...builtInTypes.filter(({ number }) => !isNotice(number)).map((entry) => entry.field),
  ...OF_ANY_TYPE,
];
