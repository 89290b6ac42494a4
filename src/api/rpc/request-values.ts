import { type DescField, type DescMessage, type JsonReadOptions, ScalarType } from "@bufbuild/protobuf";
import { TIMESTAMP } from "../../contract/json/field-types.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });

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

const INTEGERS_64: ReadonlySet<ScalarType | undefined> = new Set([
  ScalarType.INT64,
  ScalarType.UINT64,
  ScalarType.SINT64,
  ScalarType.FIXED64,
  ScalarType.SFIXED64,
]);

/** What the contract expects at a place of the JSON. */
interface Place {
  /** The field that has the value. */
  field?: DescField;
  /** The message that an object at this place is. */
  message?: DescMessage | undefined;
  /** The place of each item of a list, or each value of a map. */
  each?: Place;
}

/**
 * The options to read request messages of a type as JSON.
 *
 * `textDecoder` is an option of the library that the type of a router's options lacks.
 */
export function requestJsonOptions(desc: DescMessage): Partial<JsonReadOptions> {
  const options = {
    // A misspelt field name in a filter or in a key's permissions would otherwise remove the restriction.
    ignoreUnknownFields: false,
    textDecoder: { decode: (bytes?: Uint8Array) => exactRequest(desc, decoded(bytes)) },
  };
  return options;
}

function decoded(bytes: Uint8Array | undefined): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Error("the message is not UTF-8; send JSON as UTF-8");
  }
}

/**
 * Returns the JSON of a message with quotes around the 64-bit integers that `JSON.parse` would round. Returns text that
 * is not valid JSON unchanged: the library refuses it.
 *
 * @throws Error for a time that does not exist, which the library would move to another day, and for a number beyond
 *   2^53 with a fraction or an exponent, which `JSON.parse` would round
 */
function exactRequest(desc: DescMessage, text: string): string {
  if (!MAY_CHANGE.test(text) || !isJson(text)) return text;
  /** The place of each open object and list. */
  const open: Place[] = [];
  let place: Place | undefined = { message: desc };
  return text.replaceAll(TOKEN, (token: string, string?: string, colon?: string) => {
    if (string !== undefined && colon !== undefined) {
      const object = open.at(-1);
      place = object?.each ?? fieldPlace(object?.message, textOf(string));
    } else if (string !== undefined) {
      if (place?.message?.typeName === TIMESTAMP) assertExists(place.field, textOf(string));
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
      return `"${token}"`;
    }
    return token;
  });
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

function fieldPlace(message: DescMessage | undefined, name: string): Place | undefined {
  const field = message?.fields.find((each) => each.jsonName === name || each.name === name);
  if (!field) return undefined;
  const place = { field, message: field.message };
  return field.fieldKind === "list" || field.fieldKind === "map" ? { each: place } : place;
}

/** @throws Error if the time has a day that its month lacks, or the hour 24 */
function assertExists(field: DescField | undefined, time: string): void {
  const [, month, day, hour] = TIME.exec(time) ?? [];
  // The library refuses all other times that do not exist.
  if (Number.isNaN(Date.parse(time))) return;
  const name = `${field?.parent.name}.${field?.name}`;
  if (hour === "24") {
    throw new Error(`${name} is ${time}, but hours are 00 to 23; send midnight as 00:00:00 of the next day`);
  }
  const parsedDay = new Date(`${month}-${day}T00:00:00Z`).getUTCDate();
  if (parsedDay === Number(day)) return;
  // The day is counted on into the next month.
  const days = Number(day) - parsedDay;
  throw new Error(`${name} is ${time}, but ${month} has ${days} days; send a day from 01 to ${days}`);
}
