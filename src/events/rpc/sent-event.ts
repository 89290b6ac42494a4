import { create, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { type PublishEventRequest, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { assertFields, assertText } from "../../calls/index.ts";
import {
  type CatalogueEntry,
  eventType,
  eventTypeNamed,
  eventTypeOfMessage,
  eventTypes,
  isNotice,
  isOffered,
  payloadFields,
  processOfField,
} from "../../contract/catalogue.ts";
import { checkPayloadBytes, malformed } from "./event-bytes.ts";
import { readPayloadJson } from "./event-json.ts";
import { sortMaps } from "./sort-maps.ts";

/**
 * The maximum size of a payload in a request, in bytes. JSON may be indented, and in Protobuf's format an integer of two characters can
 * take ten bytes.
 */
const MAX_SENT_BYTES = 1_000_000;
/** The maximum length of the name of an event type, in characters. */
const MAX_NAME_CHARACTERS = 200;
/** The maximum number of event types that an error names. */
const MAX_NAMED_TYPES = 20;
/** Names of event types and messages, which errors may repeat. */
const NAME = /^[\w.-]+$/;

type Data = PublishEventRequest["data"];

/** An event of a request. */
export interface SentEvent {
  entry: CatalogueEntry;
  payload: Message;
  /** The path of the payload in the request, for errors. */
  path: string;
}

const members = new Map(
  PublishEventRequestSchema.fields
    .filter((field) => field.oneof?.name === "data")
    .map((field) => [field.localName, field.name]),
);

/** The full name of a message in a type URL, or in what names it without one. */
const messageName = (url: string) => url.slice(url.lastIndexOf("/") + 1);

/** The event type of an event; undefined if this process does not know it, or if there is no event. */
function typeOf({ case: member, value }: Data): CatalogueEntry | undefined {
  switch (member) {
    case undefined:
      return undefined;
    case "event":
      return eventTypeOfMessage(messageName(value.typeUrl));
    case "jsonEvent":
      return eventTypeNamed(value.process) ?? eventTypeOfMessage(messageName(value.process));
    default:
      return eventType(processOfField(members.get(member) as string) as number);
  }
}

/** Whether the event type of a request is named, but unknown to this process. */
export function isOfUnknownType({ data }: PublishEventRequest): boolean {
  return data.case !== undefined && typeOf(data) === undefined;
}

/**
 * Reads the event of a request, and gives the request the form in which it is compared with repeated ones: that of the event type's
 * member of `data`, or else `event` with a deterministic encoding.
 *
 * @throws DomainError INVALID_ARGUMENT with the remedy
 */
export function sentEvent(request: PublishEventRequest): SentEvent {
  const { data } = request;
  const entry = typeOf(data);
  if (data.case === undefined)
    throw invalidField("data", `is required: set one of: ${payloadFields.join(", ")}`);
  if (data.case !== "event" && data.case !== "jsonEvent") {
    const path = members.get(data.case) as string;
    if (!entry || !isOffered(entry.number))
      throw invalidField(
        path,
        `is hidden in this service by BUILT_IN_EVENT_TYPES=false; allowed: ${allowedNames()}`,
      );
    // Clients write the entries of a map in any order, and a repeated request must have the same hash.
    sortMaps(PublishEventRequestSchema, request);
    return { entry, payload: data.value, path };
  }
  const isBinary = data.case === "event";
  const url = isBinary ? data.value.typeUrl : data.value.process;
  // An event packed in JSON arrives as a JsonEvent with its type URL.
  const isPacked = isBinary || url.includes("/");
  const path = isPacked ? "event" : "json_event.payload";
  const nameField = isPacked ? `event.${isBinary ? "type_url" : "@type"}` : "json_event.process";
  const name = isPacked ? messageName(url) : url;
  assertText(nameField, name, MAX_NAME_CHARACTERS);
  if (!entry || isNotice(entry.number)) throw invalidField(nameField, problemOfType(name, entry));
  const bytes = isBinary ? data.value.value.byteLength : Buffer.byteLength(data.value.payload);
  if (bytes > MAX_SENT_BYTES)
    throw invalidField(path, `is ${bytes} bytes, more than the ${MAX_SENT_BYTES} allowed`);
  const payload =
    data.case === "event"
      ? readBytes(entry, data.value.value, path)
      : readJson(entry, data.value.payload, path);
  request.data = canonical(entry, payload);
  return { entry, payload, path };
}

function readBytes({ payload: desc }: CatalogueEntry, bytes: Uint8Array, path: string): Message {
  checkPayloadBytes(desc, bytes, path);
  let message: Message;
  try {
    message = fromBinary(desc, bytes);
  } catch {
    throw malformed(desc, path);
  }
  assertFields(desc, message, `${path}.`);
  sortMaps(desc, message);
  return message;
}

/** In Protobuf's format, so that it is checked and stored as one that was sent in it: a float in JSON has too many digits. */
function readJson(entry: CatalogueEntry, text: string, path: string): Message {
  const message = readPayloadJson(entry.payload, text, path);
  assertFields(entry.payload, message, `${path}.`);
  return readBytes(entry, toBinary(entry.payload, message), path);
}

function canonical({ field, payload: desc }: CatalogueEntry, message: Message): Data {
  if (field !== undefined) {
    const member = [...members].find(([, name]) => name === field)?.[0];
    return { case: member, value: message } as Data;
  }
  const typeUrl = `type.googleapis.com/${desc.typeName}`;
  return { case: "event", value: create(AnySchema, { typeUrl, value: toBinary(desc, message) }) };
}

function problemOfType(name: string, entry: CatalogueEntry | undefined): string {
  if (name === "")
    return 'is required: the event type, such as type.googleapis.com/webhook.v1.OrderDispatched; in JSON, send it as "@type"';
  if (entry) return `is ${entry.name}, a notice, which only the service publishes`;
  const given = NAME.test(name) ? ` ${name}` : "";
  return `names no event type${given && `:${given}`}; allowed: ${allowedNames()}`;
}

function allowedNames(): string {
  const types = eventTypes().filter(({ number }) => !isNotice(number));
  const names = types.slice(0, MAX_NAMED_TYPES).map((each) => each.name);
  const more = types.length > names.length ? " and those that ListEventTypes names" : "";
  return `${names.join(", ")}${more}. Register another one with RegisterEventTypes`;
}
