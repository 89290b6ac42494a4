import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { ANY, INTEGERS_64, TIMESTAMP } from "./field-types.ts";
import { isRawJson } from "./scalars.ts";
import { TIME_FORMS } from "./time-forms.ts";

/**
 * Matches text that may contain an integer beyond 2^53 without quotes, or a day or hour that does not exist, also if
 * characters are escaped. Most messages do not match, and are not scanned.
 */
const MAY_CHANGE =
  /[:,[\s]-?\d(?:\d{15}|[\d.]*[eE])|-02-(?:29|3[01])T|-(?:04|06|09|11)-31T|T24:|\\u00(?:2[dD]|3[\daA]|54)/;
/** Matches strings, with the colon after a name, brackets, and numbers of valid JSON. */
const TOKEN = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[[{\]}]|-?\d[\d.eE+-]*/g;
/** Matches integers that may have 64 bits. Longer ones would take quadratic time to convert. */
const WHOLE_NUMBER = /^-?\d{1,20}$/;
const TIME = /^(\d{4}-\d\d)-(\d\d)T(\d\d):\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;

/** What the contract expects at a place of the JSON. */
interface Place {
  /** The field that has the value. */
  field?: DescField;
  /** The message that an object at this place is. */
  message?: DescMessage | undefined;
  /** The place of each item of a list, or each value of a map. */
  each?: Place;
}

/** Matches text that may hold an object in place of a text of JSON, or a packed message. */
const MAY_BE_INLINE = /"payload"\s*:\s*\{|"@type"|\\u/;
const SPACE = /\s*/y;

/**
 * Returns the JSON of a message with quotes around the 64-bit integers that `JSON.parse` would round. An object in place of a text of
 * JSON becomes that text, as it is. A packed message becomes a JsonEvent whose `process` is the type URL. Returns text that is not valid
 * JSON unchanged: the library refuses it.
 *
 * @throws Error for a text that is no time or period, because the library's error does not name the field; for a time that does not
 *   exist, which the library would move to another day; and for a number beyond 2^53 with a fraction or an exponent, which
 *   `JSON.parse` would round
 */
export function exactText(desc: DescMessage, text: string): string {
  const mayBeInline = MAY_BE_INLINE.test(text) && holdsInline(desc);
  if (!(mayBeInline || MAY_CHANGE.test(text) || wrongTimes(desc)?.test(text)) || !isJson(text)) return text;
  /** The place of each open object and list. */
  const open: Place[] = [];
  let place: Place | undefined = { message: desc };
  const parts: string[] = [];
  let copied = 0;
  const replace = (from: number, to: number, by: string) => {
    parts.push(text.slice(copied, from), by);
    copied = to;
  };
  for (const { 0: token, 1: string, 2: colon, index } of text.matchAll(TOKEN)) {
    // Within an object that was replaced.
    if (index < copied) continue;
    const end = index + token.length;
    if (string !== undefined && colon !== undefined) {
      const object = open.at(-1);
      place = object?.each ?? fieldPlace(object?.message, textOf(string));
      if (place?.message?.typeName === ANY) {
        SPACE.lastIndex = end;
        SPACE.test(text);
        const from = SPACE.lastIndex;
        const close = text[from] === "{" ? endOfValue(text, from) : from;
        const event = jsonEvent(text.slice(from, close));
        if (event !== undefined) replace(index, close, event);
      }
    } else if (string !== undefined) {
      const problem = problemAt(place, textOf(string));
      if (problem) throw new Error(`${place?.field?.parent.name}.${place?.field?.jsonName} ${problem}`);
    } else if (token === "{" && place?.field && isRawJson(place.field)) {
      const close = endOfValue(text, index);
      replace(index, close, JSON.stringify(text.slice(index, close)));
    } else if (token !== "}" && token !== "]" && problemAt(place, "")) {
      throw new Error(`${place?.field?.parent.name}.${place?.field?.jsonName} ${problemAt(place, "")}`);
    } else if (token === "{" || token === "[") {
      open.push(place ?? {});
      place = place?.each;
    } else if (token === "}" || token === "]") {
      open.pop();
      place = open.at(-1)?.each;
    } else if (INTEGERS_64.has(place?.field?.scalar) && !Number.isSafeInteger(Number(token))) {
      // The library's error for other numbers.
      if (!WHOLE_NUMBER.test(token))
        throw new Error(`cannot decode ${place?.field} from JSON: not an integer`);
      replace(index, end, `"${token}"`);
    }
  }
  return parts.length === 0 ? text : parts.join("") + text.slice(copied);
}

/** What is wrong with a text, if a time or period is expected; otherwise undefined. */
function problemAt(place: Place | undefined, text: string): string | undefined {
  const expected = TIME_FORMS[place?.message?.typeName ?? ""];
  if (!expected) return undefined;
  if (!new RegExp(`^${expected.form}$`).test(text)) return `must be ${expected.words}`;
  return place?.message?.typeName === TIMESTAMP ? timeProblem(text) : undefined;
}

const wrong = new WeakMap<DescMessage, RegExp | undefined>();

/** Matches text with a value of another form for a time or period of a message, at any depth; undefined if it has none. */
function wrongTimes(desc: DescMessage): RegExp | undefined {
  return wrong.getOrInsertComputed(desc, () => {
    const ofTypes = Object.entries(TIME_FORMS).flatMap(([type, { form }]) => {
      const named = [...fieldsWithin(desc)].filter(({ message }) => message?.typeName === type);
      const names = new Set(named.flatMap(({ name, jsonName }) => [name, jsonName]));
      return names.size === 0 ? [] : [`"(?:${[...names].join("|")})"\\s*:\\s*(?!null|\\s|"${form}"|\\[)`];
    });
    return ofTypes.length === 0 ? undefined : new RegExp(ofTypes.join("|"));
  });
}

const inline = new WeakMap<DescMessage, boolean>();

/** Whether a message may hold, at any depth, a text of JSON or a packed message. */
function holdsInline(desc: DescMessage): boolean {
  return inline.getOrInsertComputed(desc, () =>
    [...fieldsWithin(desc)].some((field) => field.message?.typeName === ANY || isRawJson(field)),
  );
}

/** The fields of a message and of those in it, at any depth. */
function* fieldsWithin(desc: DescMessage): Generator<DescField, undefined> {
  const messages = new Set([desc]);
  // Iterating over a set includes items added meanwhile.
  for (const { fields } of messages)
    for (const field of fields) {
      if (field.message) messages.add(field.message);
      yield field;
    }
}

/** The tokens of an object or list of valid JSON, each with the depth that it is at. @param from its first bracket */
function* tokensOf(text: string, from: number): Generator<{ match: RegExpExecArray; depth: number }> {
  const tokens = new RegExp(TOKEN);
  tokens.lastIndex = from;
  let depth = 0;
  for (let match = tokens.exec(text); match; match = tokens.exec(text)) {
    const [token] = match;
    if (token === "}" || token === "]") depth -= 1;
    yield { match, depth };
    if (depth === 0 && (token === "}" || token === "]")) return;
    if (token === "{" || token === "[") depth += 1;
  }
}

/** The place after an object or list of valid JSON. @param from its first bracket */
function endOfValue(text: string, from: number): number {
  let end = from;
  for (const { match } of tokensOf(text, from)) end = match.index + 1;
  return end;
}

/** A packed message in JSON as a member of a request that is a JsonEvent; undefined if it does not name its type. */
function jsonEvent(packed: string): string | undefined {
  let name: number | undefined;
  for (const { match, depth } of tokensOf(packed, 0)) {
    const { 0: token, 1: string, 2: colon, index } = match;
    if (name !== undefined) {
      if (string === undefined) return undefined;
      const [before, after] = [packed.slice(0, name), packed.slice(index + token.length).trimStart()];
      const payload = after.startsWith(",")
        ? before + after.slice(1)
        : before.trimEnd().replace(/,$/, "") + after;
      return `"jsonEvent":${JSON.stringify({ process: textOf(string), payload })}`;
    }
    if (depth === 1 && colon !== undefined && textOf(string as string) === "@type") name = index;
  }
  return undefined;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The text of a JSON string. */
function textOf(string: string): string {
  return string.includes("\\") ? (JSON.parse(string) as string) : string.slice(1, -1);
}

const byName = new WeakMap<DescMessage, ReadonlyMap<string, DescField>>();

/** The fields of a message by what callers name them in JSON. */
export function fieldsByJsonName(desc: DescMessage): ReadonlyMap<string, DescField> {
  return byName.getOrInsertComputed(
    desc,
    () => new Map(desc.fields.flatMap((field) => [field.name, field.jsonName].map((name) => [name, field]))),
  );
}

function fieldPlace(message: DescMessage | undefined, name: string): Place | undefined {
  const field = message && fieldsByJsonName(message).get(name);
  if (!field) return undefined;
  const place = { field, message: field.message };
  return field.fieldKind === "list" || field.fieldKind === "map" ? { each: place } : place;
}

/** The problem of a time that has a day that its month lacks, or the hour 24; undefined for other texts. */
export function timeProblem(time: string): string | undefined {
  const [, month, day, hour] = TIME.exec(time) ?? [];
  // The library refuses all other times that do not exist.
  if (Number.isNaN(Date.parse(time))) return undefined;
  if (hour === "24") return `is ${time}, but hours are 00 to 23; send midnight as 00:00:00 of the next day`;
  const parsedDay = new Date(`${month}-${day}T00:00:00Z`).getUTCDate();
  if (parsedDay === Number(day)) return undefined;
  // The day is counted on into the next month.
  const days = Number(day) - parsedDay;
  return `is ${time}, but ${month} has ${days} days; send a day from 01 to ${days}`;
}
