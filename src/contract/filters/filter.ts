import { CelScalar, isCelError, objectType } from "@bufbuild/cel";
import { createRegistry, type DescMessage, type Message } from "@bufbuild/protobuf";
import {
  compileExpression,
  ExpressionError,
  type ExpressionScope,
  isAny,
  typeName,
} from "../../lib/cel/index.ts";
import { type CatalogueEntry, eventType } from "../catalogue.ts";
import { readPayload } from "./payload-reader.ts";

/** The maximum length of a filter, in characters. */
export const MAX_FILTER_CHARACTERS = 1_000;

/** The variables of filters. */
const EVENT = "event";
const USER_ID = "user_id";
const EXAMPLES = {
  field: "event.carrier",
  optional: "event.?carrier and event.lines[?0]",
  enumValue: "DocumentKind.DOCUMENT_KIND_INVOICE",
};

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
   * @throws ExpressionError if the filter cannot be evaluated for it
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
 * @throws ExpressionError if it is not valid for this event type
 */
export function compileFilter(process: number, expression: string): Filter {
  const { length } = [...expression];
  if (length > MAX_FILTER_CHARACTERS) {
    throw new ExpressionError(`has ${length} characters, more than the ${MAX_FILTER_CHARACTERS} allowed`);
  }
  const { type, evaluate } = compileExpression(scopeOf(entryOf(process).payload), expression);
  if (type !== CelScalar.BOOL && !isAny(type)) {
    throw new ExpressionError(`must be true or false for each event, but is ${typeName(type)}`);
  }
  return {
    matches(event) {
      const result = evaluate({ [EVENT]: event.message, [USER_ID]: event.userId });
      if (isCelError(result)) throw new ExpressionError(result.message);
      if (typeof result === "boolean") return result;
      throw new ExpressionError("the filter is neither true nor false for this event");
    },
  };
}

function entryOf(process: number): CatalogueEntry {
  const entry = eventType(process);
  if (!entry) throw new ExpressionError(`event type ${process} is not known to this version`);
  return entry;
}

function scopeOf(payload: DescMessage): ExpressionScope {
  return {
    // So that enums need no package: DocumentKind.DOCUMENT_KIND_INVOICE.
    namespace: payload.file.proto.package,
    registry: createRegistry(payload.file, ...payload.file.dependencies),
    variables: { [EVENT]: objectType(payload), [USER_ID]: CelScalar.STRING },
    examples: EXAMPLES,
  };
}
