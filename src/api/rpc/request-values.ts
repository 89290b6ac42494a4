import type { DescMessage, JsonReadOptions } from "@bufbuild/protobuf";
import { exactText } from "../../contract/json/exact-text.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * The options to read request messages of a type as JSON.
 *
 * `textDecoder` is an option of the library that the type of a router's options lacks.
 */
export function requestJsonOptions(desc: DescMessage): Partial<JsonReadOptions> {
  const options = {
    // A misspelt field name in a filter or in a key's permissions would otherwise remove the restriction.
    ignoreUnknownFields: false,
    textDecoder: { decode: (bytes?: Uint8Array) => exactText(desc, decoded(bytes)) },
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
