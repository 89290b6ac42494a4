import { Code } from "@connectrpc/connect";

/** What every REST answer is sent as. */
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

/** The envelope of a failure: Data is null, Warnings tells what to change. */
export function failureEnvelope(message: string): string {
  return `{"Success":false,"Data":null,"Warnings":[${JSON.stringify(message)}]}`;
}

/** Our own fault: nothing the caller could change. */
const OUR_FAULTS: readonly Code[] = [
  Code.Internal,
  Code.Unknown,
  Code.DataLoss,
  Code.Unimplemented,
  Code.DeadlineExceeded,
];

/** The HTTP status of a failure: 400 unless keys, limits, the database or we ourselves are the reason. */
export function statusOf(code: Code): number {
  if (code === Code.Unauthenticated) return 401;
  if (code === Code.PermissionDenied) return 403;
  if (code === Code.ResourceExhausted) return 429;
  if (code === Code.Unavailable) return 503;
  return OUR_FAULTS.includes(code) ? 500 : 400;
}

/**
 * A whole HTTP/1.1 answer, for where there is no framework to write one: the request could not be read.
 *
 * @param headers lines of headers
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
