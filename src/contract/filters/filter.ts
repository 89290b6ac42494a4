import { type CelEnv, CelScalar, celEnv, isCelError, objectType, parse, plan } from "@bufbuild/cel";
import { createRegistry, type DescMessage, type Message } from "@bufbuild/protobuf";
import { type CatalogueEntry, catalogue } from "../catalogue.ts";
import { type EventSize, type FilterSize, Steps, sizeOf } from "./cost.ts";
import { FilterError } from "./filter-error.ts";
import { Patterns } from "./patterns.ts";
import { readPayload } from "./payload-reader.ts";
import { typeName, typeOf } from "./type-check.ts";

/** The maximum length of a filter, in characters. */
export const MAX_FILTER_CHARACTERS = 1_000;

/** The maximum number of brackets within each other. */
const MAX_NESTING = 32;
/** A comment or a text in quotes, as the parser reads them: raw or not, in three quotes or in one. */
const NO_BRACKETS = new RegExp(
  [
    "//[^\\r\\n]*",
    `[rR](?:"""[^]*?"""|'''[^]*?'''|"[^"\\r\\n]*"|'[^'\\r\\n]*')`,
    `"""(?:\\\\[^]|(?!""")[^\\\\])*"""|'''(?:\\\\[^]|(?!''')[^\\\\])*'''`,
    `"(?:\\\\[^\\r\\n]|[^"\\\\\\r\\n])*"|'(?:\\\\[^\\r\\n]|[^'\\\\\\r\\n])*'`,
  ].join("|"),
  "g",
);

/** The variables of filters. */
const EVENT = "event";
const USER_ID = "user_id";

/** An event as filters see it. */
export interface FilterEvent extends EventSize {
  /** The payload. */
  message: Message;
  userId: string;
}

/** A compiled filter of an event type. */
export interface Filter {
  /**
   * Whether the webhook is to get an event of this type.
   *
   * @throws FilterError if the filter cannot be evaluated for it
   */
  matches(event: FilterEvent): boolean;
}

/** Reads an event of a type for its filters. @throws Error if the payload is not one of this type */
export function filterEvent(process: number, payload: string, userId: string): FilterEvent {
  const { message, longestList } = readPayload(entryOf(process).payload, payload);
  return { message, longestList, characters: payload.length, userId };
}

/**
 * Compiles a filter: an expression in CEL (https://cel.dev) over `event`, the payload with the names of its proto, and
 * `user_id`.
 *
 * @param process the number of the event type
 * @param patterns the compiled regular expressions that it shares with other filters
 * @throws FilterError if it is not valid for this event type
 */
export function compileFilter(process: number, expression: string, patterns = new Patterns()): Filter {
  const { length } = [...expression];
  if (length > MAX_FILTER_CHARACTERS) {
    throw new FilterError(`has ${length} characters, more than the ${MAX_FILTER_CHARACTERS} allowed`);
  }
  assertFlat(expression);
  const steps = new Steps();
  const env = environmentOf(entryOf(process).payload, steps, patterns);
  const parsed = parseFilter(expression);
  const type = typeOf(env, parsed);
  if (type !== CelScalar.BOOL && type !== CelScalar.DYN) {
    throw new FilterError(`must be true or false for each event, but is ${typeName(type)}`);
  }
  const size: FilterSize = sizeOf(parsed.expr);
  for (const pattern of size.regexes) patterns.assertValid(pattern);
  const evaluate = plan(env, parsed);
  return {
    matches(event) {
      steps.start(size, event);
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

function environmentOf(payload: DescMessage, steps: Steps, patterns: Patterns): CelEnv {
  return celEnv({
    // So that enums need no package: DocumentKind.DOCUMENT_KIND_INVOICE.
    namespace: payload.file.proto.package,
    registry: createRegistry(payload.file, ...payload.file.dependencies),
    variables: { [EVENT]: objectType(payload), [USER_ID]: CelScalar.STRING },
    re2: patterns.forFilter((size, characters) => steps.read(size, characters)),
  });
}

/** @throws FilterError for brackets nested so deeply that the parser would need long to find out that one is missing */
function assertFlat(expression: string): void {
  let depth = 0;
  for (const [bracket] of expression.replaceAll(NO_BRACKETS, "").matchAll(/[()[\]{}]/g)) {
    depth += "([{".includes(bracket) ? 1 : -1;
    if (depth > MAX_NESTING)
      throw new FilterError(`has brackets in brackets more than ${MAX_NESTING} deep; use fewer`);
  }
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
