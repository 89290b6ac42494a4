import { Code, type ConnectError } from "@connectrpc/connect";
import { isTooLarge } from "../../calls/errors/index.ts";

/** The content type of all REST responses. */
export const JSON_CONTENT_TYPE = "application/json; charset=utf-8";

/**
 * The envelope of a success (contract, section 2.2).
 *
 * @param data JSON text
 * @param warnings sentences about the result
 */
export function successEnvelope(data: string, warnings: readonly string[] = []): string {
  return `{"Success":true,"Data":${data},"Warnings":${JSON.stringify(warnings)}}`;
}

/**
 * The envelope of a success in parts, for a list that is read in pages.
 *
 * @param pages the items of each page as JSON, separated by commas
 */
export async function* successEnvelopeOf(
  pages: AsyncIterable<string> | Iterable<string>,
): AsyncGenerator<string> {
  let start = '{"Success":true,"Data":[';
  for await (const page of pages) {
    if (page === "") continue;
    yield start + page;
    start = ",";
  }
  yield '],"Warnings":[]}';
}

/** The envelope of a failure: Data is null, Warnings contains the error. */
export function failureEnvelope(message: string): string {
  return `{"Success":false,"Data":null,"Warnings":[${JSON.stringify(message)}]}`;
}

/** Codes of internal errors, which callers cannot fix. */
const INTERNAL_ERROR_CODES: readonly Code[] = [
  Code.Internal,
  Code.Unknown,
  Code.DataLoss,
  Code.Unimplemented,
  Code.DeadlineExceeded,
];

/** The HTTP status of a failure: 400 unless keys, limits, the database or an internal error are the cause. */
export function statusOf(error: ConnectError): number {
  const { code } = error;
  if (isTooLarge(error)) return 413;
  if (code === Code.Unauthenticated) return 401;
  if (code === Code.PermissionDenied) return 403;
  if (code === Code.ResourceExhausted) return 429;
  if (code === Code.Unavailable) return 503;
  return INTERNAL_ERROR_CODES.includes(code) ? 500 : 400;
}

/**
 * A complete HTTP/1.1 response, for requests that cannot be parsed and so never reach the framework.
 *
 * @param headers header lines
 */
export function rawFailure(message: string, headers: readonly string[]): string {
  const body = failureEnvelope(message);
  return [
    "HTTP/1.1 400 Bad Request",
    `Content-Type: ${JSON_CONTENT_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
    ...headers,
    "",
    body,
  ].join("\r\n");
}
