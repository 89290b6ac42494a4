import { randomUUID } from "node:crypto";
import { type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { required } from "../../../gen/webhook/v1/options_pb.ts";
import { eventTypes } from "../../../src/contract/catalogue.ts";
import { commentOf } from "../../../src/contract/comments.ts";

/** A value of a field, and how a request gets it. */
export interface FieldValue {
  /** The path of the field, as errors name it. */
  path: string;
  /** What the value is, for people. */
  what: string;
  /** Sets it in a request of the same shape. */
  set(request: Message): void;
}

/** Limits in characters of texts whose comments refer to another field, or state none. */
const OTHER_LIMITS: Record<string, number> = {
  "UpdateWebhookRequest.url": 2_048,
  "CreateEndpointRequest.url": 2_048,
  "CreateEndpointRequest.secret": 94,
  "RotateWebhookSecretRequest.secret": 94,
  "OAuth2Authentication.token_url": 2_048,
  "TryWebhookFilterRequest.filter": 1_000,
  "SendAgainManyRequest.search": 300,
  "ListFailureReasonsRequest.search": 300,
  "ExportDeliveriesRequest.search": 300,
  "ResentDeliveries.search": 300,
  "ErasePayloadsRequest.user_id": 128,
  "ListAuditEntriesRequest.target_id": 100,
  "ExportAuditEntriesRequest.target_id": 100,
  "ExportAuditEntriesRequest.search": 100,
  "RequestHeader.name": 100,
  "OAuth2Authentication.client_secret": 16_384,
  "OAuth2Authentication.scope": 16_384,
  "OAuth2Authentication.audience": 16_384,
};
/** Texts that are ids of no thing of this service. */
const NO_IDS = ["user_id", "client_id", "target_id"];
/** Of all others one member is required. */
const OPTIONAL_ONEOFS = ["authentication"];
/** What a right value is made longer with; `x` unless given, null for PEM, which is read up to its end, and for secrets. */
const PADDING: Record<string, string | null> = {
  filter: " ",
  payload: " ",
  certificate: null,
  certificates: null,
  key: null,
  secret: null,
  // A longer one is another customer.
  customer: null,
};
/** What they must be is in the tests of the eventTypes(). */
const PAYLOADS: readonly DescMessage[] = eventTypes().map(({ payload }) => payload);

const number = (text: string | undefined) => Number(text?.replaceAll(",", ""));
const nameOf = (field: DescField) => `${field.parent.name}.${field.name}`;

/** The maximum length of a text, in characters. */
function limitOf(field: DescField): number {
  const comment = commentOf(field) ?? "";
  const [, characters] =
    /(?:at most|to) ([\d,]+) (?:visible ASCII characters|characters|bytes of)/i.exec(comment) ?? [];
  if (characters !== undefined) return number(characters);
  const [, kibibytes] = /at most ([\d,]+) KiB/.exec(comment) ?? [];
  if (kibibytes !== undefined) return number(kibibytes) * 1_024;
  const referred = OTHER_LIMITS[nameOf(field)];
  if (referred === undefined)
    throw new Error(
      `the comment of ${field} states no limit in characters: state it, or name the field here`,
    );
  return referred;
}

/** The range that a number's comment states. */
function rangeOf(field: DescField): [number, number] | undefined {
  const [, least, most] = /\bfrom (\d+) to ([\d,]+)/i.exec(commentOf(field) ?? "") ?? [];
  return most === undefined ? undefined : [number(least), number(most)];
}

/** A field at a place in a request. */
interface Place {
  field: DescField;
  path: string;
  /** The message with the field, in a request of the same shape. */
  owner: (request: ReflectMessage) => ReflectMessage;
}

/** All fields of a request, and of the messages in it that are set. */
function* placesIn(
  message: ReflectMessage,
  path = "",
  owner: Place["owner"] = (root) => root,
): Generator<Place> {
  for (const field of message.fields) {
    if (field.oneof && !message.isSet(field)) continue;
    yield { field, path: path + field.name, owner };
    if (!message.isSet(field) || field.message?.typeName.startsWith("google.")) continue;
    if (field.fieldKind === "message") {
      yield* placesIn(
        message.get(field),
        `${path}${field.name}.`,
        (root) => owner(root).get(field) as ReflectMessage,
      );
    } else if (field.fieldKind === "list" && field.listKind === "message") {
      const first = (of: ReflectMessage) => of.get(field).get(0) as ReflectMessage;
      yield* placesIn(first(message), `${path}${field.name}[0].`, (root) => first(owner(root)));
    }
  }
}

const isOfPayload = ({ parent, message }: DescField) =>
  PAYLOADS.includes(parent) || (message !== undefined && PAYLOADS.includes(message));
const isId = ({ name, parent }: DescField) =>
  /_id$/.test(name) && !NO_IDS.includes(name) && !PAYLOADS.includes(parent);
const isText = (field: DescField) => field.fieldKind === "scalar" && field.scalar === ScalarType.STRING;

/** The fields that a request has, by message and name, without those of payloads. */
export function fieldsIn(desc: DescMessage, request: Message): string[] {
  return [...placesIn(reflect(desc, request))]
    .filter(({ field }) => !isOfPayload(field))
    .map(({ field }) => nameOf(field));
}

/** The fields that requests of a type can have, by message and name, without those of payloads. */
export function fieldsOf(desc: DescMessage): string[] {
  return desc.fields
    .filter((field) => !isOfPayload(field))
    .flatMap((field) => [
      nameOf(field),
      ...(field.message && !field.message.typeName.startsWith("google.") ? fieldsOf(field.message) : []),
    ]);
}

type Set = (owner: ReflectMessage) => void;

/** The values that a function has for the fields of a request. */
function valuesFor(
  desc: DescMessage,
  request: Message,
  valuesOf: (field: DescField, owner: ReflectMessage) => [string, Set][],
): FieldValue[] {
  return [...placesIn(reflect(desc, request))].flatMap(({ field, path, owner }) =>
    valuesOf(field, owner(reflect(desc, request))).map(([what, set]) => ({
      path: what === "missing" ? path.replace(/\w+$/, field.oneof?.name ?? field.name) : path,
      what,
      set: (other: Message) => set(owner(reflect(desc, other))),
    })),
  );
}

/** Values that no request may have: for the fields' types, their options, and what their comments promise. */
export const wrongValues = (desc: DescMessage, request: Message) => valuesFor(desc, request, wrongOf);

/** The largest values that the fields' comments allow. */
export const largestValues = (desc: DescMessage, request: Message) => valuesFor(desc, request, largestOf);

/** Ids that nothing has; for webhooks also that of a deleted one. */
export const unknownIds = (desc: DescMessage, request: Message, deletedWebhookId: bigint) =>
  valuesFor(desc, request, (field, owner) => {
    if (!isId(field) || field.fieldKind !== "scalar" || !owner.isSet(field)) return [];
    const put = (value: string | bigint) => (message: ReflectMessage) => message.set(field, value);
    if (field.scalar === ScalarType.STRING) return [["unknown", put(randomUUID())]];
    return [
      ["unknown", put(4_711n)],
      ["deleted", put(deletedWebhookId)],
    ];
  });

function wrongOf(field: DescField, owner: ReflectMessage): [string, Set][] {
  const values: [string, Set][] = [];
  const isNeeded = field.oneof ? !OPTIONAL_ONEOFS.includes(field.oneof.name) : getOption(field, required);
  if (isNeeded) values.push(["missing", (message) => message.clear(field)]);
  if (PAYLOADS.includes(field.parent)) return values;
  const put = (what: string, value: unknown) =>
    values.push([what, (message) => message.set(field, value as never)]);
  const fill = (what: string, value: unknown, times: number) =>
    values.push([
      what,
      (message) => {
        const list = message.get(field) as { add(item: unknown): void };
        for (let n = 0; n < times; n += 1) list.add(value);
      },
    ]);
  if (isText(field)) {
    const text = owner.get(field) as string;
    if (PADDING[field.name] !== null) put("a null character", `${text}\0`);
    if (isId(field)) put("no UUID", "x");
    else if (field.name === "page_token") put("no token", "x");
    else put("too long", padded(field, text, limitOf(field) + 1) ?? "x".repeat(limitOf(field) + 1));
  } else if (field.fieldKind === "scalar" && field.scalar === ScalarType.INT32) {
    const range = rangeOf(field);
    if (range) {
      put("negative", -1);
      put("too large", range[1] + 1);
    }
  } else if (field.fieldKind === "enum") {
    put("no member", 99);
  } else if (field.fieldKind === "message" && field.message.typeName === "google.protobuf.Timestamp") {
    const time = reflect(field.message);
    time.set(field.message.field.seconds as DescField, 253_402_300_800n as never);
    put("after the year 9999", time);
  } else if (field.fieldKind === "list") {
    const [, most] = /(?:at most|to) ([\d,]+)\b/i.exec(commentOf(field) ?? "") ?? [];
    if (field.listKind === "enum") {
      fill("no member", 99, 1);
      fill("more than there are", field.enum.values.at(-1)?.number, field.enum.values.length + 1);
    } else if (field.listKind === "scalar" && most !== undefined) fill("too many", 1n, number(most) + 1);
  }
  return values;
}

function largestOf(field: DescField, owner: ReflectMessage): [string, Set][] {
  if (PAYLOADS.includes(field.parent)) return [];
  if (isText(field) && !isId(field) && field.name !== "page_token") {
    const text = padded(field, owner.get(field) as string, limitOf(field));
    return text === undefined ? [] : [["largest", (message) => message.set(field, text)]];
  }
  const isNumber = field.fieldKind === "scalar" && field.scalar === ScalarType.INT32;
  const range = isNumber ? rangeOf(field) : undefined;
  return range ? [["largest", (message) => message.set(field, range[1])]] : [];
}

/** The text with a length in characters; undefined if it cannot be made longer. */
function padded(field: DescField, text: string, length: number): string | undefined {
  const padding = PADDING[field.name];
  if (padding === null) return undefined;
  return text + (text === "" ? "x" : (padding ?? "x")).repeat(length - text.length);
}
