import type { DescMethod } from "@bufbuild/protobuf";
import { createAsyncIterable, type UniversalServerResponse } from "@connectrpc/connect/protocol";
import { errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { refusal } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { callableByGet } from "../../contract/secret-fields.ts";

const CONTENT_TYPES = "application/json, application/proto, application/grpc-web+proto, application/grpc";

/** The maximum length of a content type repeated in an error, in characters. */
const MAX_SHOWN_TYPE = 50;

function shownType(contentType: string | null): string {
  return contentType
    ? `the Content-Type ${JSON.stringify(contentType.slice(0, MAX_SHOWN_TYPE))}`
    : "a body without a Content-Type";
}

/**
 * Adds a body to errors that the library sends with a status only: unsupported HTTP methods, content types and HTTP
 * versions.
 *
 * @param contentType that of the request's body; null if missing, undefined without a body
 */
export function withWords(
  response: UniversalServerResponse,
  method: DescMethod,
  contentType?: string | null,
): UniversalServerResponse {
  const byGet = callableByGet(method);
  const header = new Headers(response.header);
  let { status } = response;
  let words: string;
  switch (response.status) {
    case 405:
      header.set("Allow", byGet ? "GET, POST" : "POST");
      words = "is called by POST";
      break;
    case 415:
      header.set("Accept-Post", CONTENT_TYPES);
      words =
        contentType === undefined
          ? "is called by POST with Content-Type: application/json"
          : `cannot read ${shownType(contentType)}: send JSON by POST with Content-Type: application/json`;
      words += `; Content-Type is one of: ${CONTENT_TYPES}`;
      if (byGet) words += "; or by GET with connect=v1, encoding=json and message={} in the query";
      break;
    case 505:
      // The library's 505 would mean that the service does not support this HTTP version at all.
      status = 426;
      words = "streams both ways, which HTTP/1.1 cannot: call it over HTTP/2";
      break;
    default:
      return response;
  }
  const error = refusal(new DomainError("UNIMPLEMENTED", `${method.name} ${words}`));
  const body = errorToJsonBytes(error, undefined);
  header.set("Content-Type", "application/json");
  header.set("Content-Length", String(body.byteLength));
  return { ...response, status, header, body: createAsyncIterable([body]) };
}
