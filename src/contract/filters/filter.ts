import { type CelEnv, CelScalar, celEnv, isCelError, objectType, parse, plan } from "@bufbuild/cel";
import { createRegistry, type DescMessage, type Message } from "@bufbuild/protobuf";
import { RE2JS } from "@bufbuild/re2";
import { type CatalogueEntry, catalogue } from "../catalogue.ts";
import { FilterError } from "./filter-error.ts";
import { readPayload } from "./payload-reader.ts";
import { typeName, typeOf } from "./type-check.ts";

/** The maximum length of a filter, in characters. */
export const MAX_FILTER_CHARACTERS = 1_000;

/** The variables of filters. */
const EVENT = "event";
const USER_ID = "user_id";

/** An event as filters see it. */
export interface FilterEvent {
  /** The payload. */
  message: Message;
  userId: string;
}

/** A compiled filter of an event type. */
export interface Filter {
  /**
   * Whether the webhook is to get an event of this type. An evaluation may take seconds: src/filters ends those that take long.
   *
   * @throws FilterError if the filter cannot be evaluated for it
   */
  matches(event: FilterEvent): boolean;
}

/** Reads an event of a type for its filters. @throws Error if the payload is not one of this type */
export function filterEvent(process: number, payload: string, userId: string): FilterEvent {
  return { message: readPayload(entryOf(process).payload, payload), userId };
}

/**
 * Compiles a filter: an expression in CEL (https://cel.dev) over `event`, the payload with the names of its proto, and
 * `user_id`.
 *
 * @param process the number of the event type
 * @throws FilterError if it is not valid for this event type
 */
export function compileFilter(process: number, expression: string): Filter {
  const { length } = [...expression];
  if (length > MAX_FILTER_CHARACTERS) {
    throw new FilterError(`has ${length} characters, more than the ${MAX_FILTER_CHARACTERS} allowed`);
  }
  const env = environmentOf(entryOf(process).payload);
  const parsed = parseFilter(expression);
  const type = typeOf(env, parsed);
  if (type !== CelScalar.BOOL && type !== CelScalar.DYN) {
    throw new FilterError(`must be true or false for each event, but is ${typeName(type)}`);
  }
  const evaluate = plan(env, parsed);
  return {
    matches(event) {
      const result = evaluate({ [EVENT]: event.message, [USER_ID]: event.userId });
      if (isCelError(result)) throw new FilterError(result.message);
      if (typeof result === "boolean") return result;
      throw new FilterError("the filter is neither true nor false for this event");
    },
  };
}

function entryOf(process: number): CatalogueEntry {
  const entry = catalogue.find(({ number }) => number === process);
  if (!entry) throw new FilterError(`event type ${process} is not known to this version`);
  return entry;
}

function environmentOf(payload: DescMessage): CelEnv {
  const compiled = new Map<string, RE2JS>();
  return celEnv({
    // So that enums need no package: DocumentKind.DOCUMENT_KIND_INVOICE.
    namespace: payload.file.proto.package,
    registry: createRegistry(payload.file, ...payload.file.dependencies),
    variables: { [EVENT]: objectType(payload), [USER_ID]: CelScalar.STRING },
    re2: { compile: (pattern) => compiled.getOrInsertComputed(pattern, () => RE2JS.compile(pattern)) },
  });
}

function parseFilter(expression: string): ReturnType<typeof parse> {
  try {
    return parse(expression);
  } catch (error) {
    throw new FilterError(syntaxError(expression, error as Error));
  }
}

/** The parser's messages name what else it could have read, but not what is missing. */
function syntaxError(expression: string, error: Error): string {
  const { location } = error as { location?: { start: { offset: number } } };
  if (!location) return `is not a valid expression: ${error.message}`;
  const { offset } = location.start;
  const rest = expression.slice(offset, offset + 20);
  const where =
    rest === "" ? "it ends too early" : `it cannot be read from character ${offset + 1} on: ${rest}`;
  return `is not a valid expression: ${where}`;
}
