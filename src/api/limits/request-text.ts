import { withoutExcerpt } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { checkJsonElements } from "./element-limit.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });
/** Matches half of a surrogate pair, alone or in a pair, literal or escaped. */
const SURROGATE = /[\ud800-\udfff]|\\u[dD][89a-fA-F]/;

/**
 * Checks the JSON of a request message before it is parsed.
 *
 * @throws DomainError INVALID_ARGUMENT for text that is not UTF-8, too complex, or contains half of a surrogate pair,
 *   which protobuf strings cannot contain
 */
export function checkJsonMessage(bytes: Uint8Array): void {
  checkJsonElements(bytes);
  const text = decodeUtf8(bytes);
  if (SURROGATE.test(text)) assertWellFormed(text);
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw invalid("the message is not UTF-8; send JSON as UTF-8");
  }
}

function assertWellFormed(text: string): void {
  let wellFormed = true;
  try {
    JSON.parse(text, (key, value: unknown) => {
      if (!key.isWellFormed() || (typeof value === "string" && !value.isWellFormed())) wellFormed = false;
      return undefined;
    });
  } catch (error) {
    throw invalid(`the message is not valid JSON: ${withoutExcerpt((error as Error).message)}`);
  }
  if (!wellFormed) {
    throw invalid("the message holds half of a surrogate pair, such as \\ud800; send valid Unicode text");
  }
}

function invalid(message: string): DomainError {
  return new DomainError("INVALID_ARGUMENT", message);
}
