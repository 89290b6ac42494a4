import {
  createRegistry,
  type DescEnum,
  type DescField,
  type DescFile,
  type DescMessage,
  type Registry,
  ScalarType,
} from "@bufbuild/protobuf";
import { protoCamelCase } from "@bufbuild/protobuf/reflect";
import { WebhookProcessSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { NoticeSchema } from "../../../gen/webhook/v1/notice_pb.ts";
import { ANY } from "../../contract/json/field-types.ts";
import { enumChoices } from "../../contract/json/names.ts";
import { isRawJson } from "../../contract/json/scalars.ts";
import { TIME_FORMS } from "../../contract/json/time-forms.ts";

/** The JSON form of scalar types, as text for errors; other types are numbers. */
const SCALARS: Partial<Record<ScalarType, string>> = {
  [ScalarType.STRING]: "a string",
  [ScalarType.BOOL]: "true or false",
  [ScalarType.BYTES]: "a string of base64",
  [ScalarType.INT32]: "a whole number of 32 bits",
  [ScalarType.UINT32]: "a whole number of 32 bits",
  [ScalarType.INT64]: "a whole number of 64 bits",
  [ScalarType.UINT64]: "a whole number of 64 bits",
};

/** The JSON form of messages that have a special one, as text for errors. */
function wellKnown(type: string): string | undefined {
  if (type === ANY) return 'an object whose "@type" is the full name of its message';
  return TIME_FORMS[type]?.words;
}

/** The names under which a caller would publish notices in JSON. */
const NOTICE_KEYS = new Set(NoticeSchema.fields.flatMap(({ name, jsonName }) => [name, jsonName]));

/**
 * V8's message about JSON, without the part of the text that it repeats: that may be a secret.
 *
 * @param message of a SyntaxError
 */
export function withoutExcerpt(message: string): string {
  if (!message.endsWith(" is not valid JSON")) return message;
  return /^Unexpected token .{3,4}(?=, )/su.exec(message)?.[0] ?? "unexpected text";
}

/**
 * The library's message about JSON that does not fit, in plain words: what is allowed instead of what was sent, which
 * may be a secret, except for enums. Other messages are returned unchanged.
 *
 * The library's errors have no other form: a message, and for some of them the field. `api/errors/likely-mistakes` fails if another
 * version words them differently.
 *
 * @param request the type of the request
 */
export function plainJsonMessage(message: string, request: DescMessage | undefined): string {
  const [, kind, name = "", reason = ""] =
    /^cannot decode (enum|message|field|oneof) ([\w.]+) from JSON: (.*)$/s.exec(message) ?? [];
  const types = request && typesOf(request.file);
  switch (kind) {
    case "enum": {
      const numbers = name === WebhookProcessSchema.typeName ? REGISTERED_BY_NUMBER : "";
      return `${shortName(name)} has no value ${reason}${numbers}; allowed: ${choicesOf(types?.getEnum(name))}`;
    }
    case "message":
      return aboutMessage(name, reason, types?.getMessage(name), name === request?.typeName);
    case "field": {
      const type = types?.getMessage(name.slice(0, name.lastIndexOf(".")));
      const field = type?.fields.find((each) => name.endsWith(`.${each.name}`));
      return field
        ? `${field.parent.name}.${field.jsonName} ${aboutField(field, reason)}`
        : `${name.split(".").slice(-2).join(".")} has another type`;
    }
    case "oneof":
      return `${shortName(name)} ${aboutOneof(reason)}`;
    default:
      return message;
  }
}

const REGISTERED_BY_NUMBER =
  " (registered event types are sent by their number, without quotes; ListProcesses has the numbers)";

function aboutOneof(reason: string): string {
  const [, one, other] = /^(?:oneof )?set multiple times by (\w+) and (\w+)$/.exec(reason) ?? [];
  return one && other
    ? `is set by both ${protoCamelCase(one)} and ${protoCamelCase(other)}; send one of them`
    : reason;
}

/** Names of fields in a text, alone or in a path, without quotes. */
const FIELD_NAME = /(?<!["\w])[a-z][a-z\d]*(?:_[a-z\d]+)+(?!["\w])/g;
const jsonNames = new WeakMap<DescFile, ReadonlyMap<string, string>>();

/**
 * A message for a caller that speaks JSON: fields of the request, and of other messages of its file, have their names in JSON.
 *
 * @param request the type of the request
 */
export function withJsonNames(message: string, { file }: DescMessage): string {
  let names = jsonNames.get(file);
  if (!names) {
    const messages = [...typesOf(file)].filter((type) => type.kind === "message");
    names = new Map(messages.flatMap(({ fields }) => fields.map(({ name, jsonName }) => [name, jsonName])));
    jsonNames.set(file, names);
  }
  return message.replace(FIELD_NAME, (name) => names?.get(name) ?? name);
}

const registries = new WeakMap<DescFile, Registry>();

/** The types of a proto file and of those that it imports. */
function typesOf(file: DescFile): Registry {
  const known = registries.get(file);
  if (known) return known;
  const withImports = (each: DescFile): DescFile[] => [each, ...each.dependencies.flatMap(withImports)];
  const types = createRegistry(...withImports(file));
  registries.set(file, types);
  return types;
}

/** @param isRequest of a request itself, keys are names of fields; messages in it may get a secret in place of one */
function aboutMessage(
  name: string,
  reason: string,
  desc: DescMessage | undefined,
  isRequest: boolean,
): string {
  if (/JSON/.test(reason)) return `the message is not valid JSON: ${withoutExcerpt(reason)}`;
  const wanted = wellKnown(name);
  if (wanted) return `${shortName(name)} must be ${wanted}`;
  if (reason.startsWith("maximum")) return `${shortName(name)} has too many nested levels`;
  if (reason.startsWith("duplicate")) return `${shortName(name)} has a field twice; send it once`;
  const [, unknown] = /^key "(.*)" is unknown$/s.exec(reason) ?? [];
  if (unknown === undefined) return `${shortName(name)} must be an object`;
  const allowed = desc?.fields.map(({ jsonName }) => jsonName).join(", ") || "none";
  const holdsSecret = !desc || (!isRequest && desc.fields.some(({ proto }) => proto.options?.debugRedact));
  const field = holdsSecret ? "of this name" : `"${unknown}"`;
  const why = NOTICE_KEYS.has(unknown) ? "; only the service publishes notices" : "";
  return `${shortName(name)} has no field ${field}${why}; allowed: ${allowed}`;
}

/** The library's reason why a value does not fit a field, in plain words, to read after the field's name. */
export function aboutField(field: DescField, reason: string): string {
  if (/^(oneof )?set multiple times/.test(reason)) return aboutOneof(reason);
  if (/null$/.test(reason)) return "must not have null as an item";
  if (reason.endsWith(": invalid UTF8"))
    return "holds half of a surrogate pair, such as \\ud800; send valid Unicode text";
  const wanted = wantedBy(field);
  if (field.fieldKind === "map") return `must be an object, each value ${wanted}`;
  return field.fieldKind === "list" ? `must be a list, each item ${wanted}` : `must be ${wanted}`;
}

function wantedBy(field: DescField): string {
  if (isRawJson(field)) return "an object, or a string of JSON";
  if (field.enum) return `one of: ${choicesOf(field.enum)}`;
  if (field.message) return wellKnown(field.message.typeName) ?? "an object";
  return SCALARS[field.scalar as ScalarType] ?? "a number";
}

const choicesOf = (desc: DescEnum | undefined) => (desc ? enumChoices(desc).join(", ") : "its values");

const shortName = (typeName: string) => typeName.slice(typeName.lastIndexOf(".") + 1);
