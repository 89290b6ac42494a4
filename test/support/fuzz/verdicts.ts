import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromString, codeToHttpStatus, endStreamFromJson } from "@connectrpc/connect/protocol-connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { trailerParse } from "@connectrpc/connect/protocol-grpc-web";
import { described, expectDescribed } from "../described-answers.ts";
import type { FuzzRequest } from "./fuzz-request.ts";
import { DEADLINE_HEADERS } from "./headers.ts";
import type { Answer } from "./senders.ts";

/** What is wrong with an answer. The kind is the same for problems that probably have one cause. */
export interface Problem {
  kind: string;
  detail: string;
}

/** Codes that say that the service is at fault. */
const OWN_FAULTS = [Code.Unknown, Code.Internal, Code.DataLoss, Code.Unavailable];
/** Statuses that Connect has no code for; their code is `unimplemented`. */
const UNIMPLEMENTED_STATUSES = [404, 405, 415, 426];
/** Heads of requests that Node may find too long, in characters. */
const LONG_HEAD = 15_000;
const COMPRESSED_FLAG = 1;
const END_STREAM_FLAG = 2;
const TRAILER_FLAG = 0x80;

class Wrong extends Error {}

/** What is wrong with the answer to a request; undefined when nothing is. */
export function problemOf(request: FuzzRequest, answer: Answer): Problem | undefined {
  try {
    check(request, answer);
    return undefined;
  } catch (error) {
    const kind = error instanceof Wrong ? error.message : "an answer that is not as described";
    return {
      kind: `${request.protocol}: ${kind}`,
      detail: String((error as Error).cause ?? error).slice(0, 2_000),
    };
  }
}

function check(request: FuzzRequest, answer: Answer): void {
  const { outcome, status, error } = answer;
  const isUnspecified = request.protocol.startsWith("raw") || isRefusedAsHttp(request);
  if (outcome === "unsendable" || (outcome === "closed" && isUnspecified)) return;
  if (outcome !== "answered") throw new Wrong(`${outcome}, without an answer`, { cause: error });
  if (status >= 500 && !(status === 504 && hasDeadline(request)))
    throw new Wrong(`HTTP ${status}`, { cause: text(answer) });
  if (isUnspecified || answer.headers["content-type"] === undefined) return;
  if (error) throw new Wrong("the answer was cut off", { cause: error });
  if (request.protocol === "REST" && !isStrayCall(request)) checkRest(request, answer);
  else checkError(request, answer);
}

/** Whether a request may be refused before anything knows its protocol. */
function isRefusedAsHttp({ over, path, headers }: FuzzRequest): boolean {
  // A stream without a valid authority is reset.
  if (over === "HTTP/2") return "host" in headers;
  const isExpected = headers.expect === undefined || headers.expect === "100-continue";
  return !isExpected || path.length + JSON.stringify(headers).length > LONG_HEAD;
}

const hasDeadline = ({ headers }: FuzzRequest) => DEADLINE_HEADERS.some((name) => name in headers);

/** Whether a path beside those of REST is called as a method is: the answer that there is none is that protocol's. */
const isStrayCall = ({ path, headers }: FuzzRequest) =>
  /^application\/(grpc|connect\+)/.test(headers["content-type"] ?? "") &&
  !((path.split("?")[0] as string) in described.paths);

function checkRest({ method, path, headers }: FuzzRequest, answer: Answer): void {
  // A browser that asks for an unknown path gets the settings page.
  if (headers.accept?.includes("text/html")) return;
  const header = (name: string) => answer.headers[name.toLowerCase()];
  expectDescribed({ method, path, status: answer.status, header, text: text(answer) });
}

function checkError(request: FuzzRequest, answer: Answer): void {
  const error = errorOf(request, answer);
  if (!error) return;
  const { code, rawMessage } = error;
  const isOwnFault = OWN_FAULTS.includes(code) || !(code in Code);
  if (isOwnFault || (code === Code.DeadlineExceeded && !hasDeadline(request)))
    throw new Wrong(`code ${Code[code]}: ${rawMessage.slice(0, 30)}`, { cause: rawMessage });
}

/** The error that an answer tells of, read by its protocol's rules. */
function errorOf(request: FuzzRequest, answer: Answer): ConnectError | undefined {
  const { headers, trailers, isWhole, status } = answer;
  const type = headers["content-type"] as string;
  if (type.startsWith("application/connect+")) {
    const end = endOf(answer, END_STREAM_FLAG, "connect-content-encoding");
    return end && endStreamFromJson(end).error;
  }
  if (type.startsWith("application/grpc")) {
    let told = new Headers("grpc-status" in trailers ? trailers : headers);
    if (type.startsWith("application/grpc-web") && !told.has("grpc-status"))
      told = trailerParse(endOf(answer, TRAILER_FLAG, "grpc-encoding") ?? Buffer.alloc(0));
    if (isWhole && !told.has("grpc-status")) throw new Wrong("no grpc-status", { cause: text(answer) });
    return findTrailerError(told);
  }
  if (status === 200 || !type.startsWith("application/json") || request.method === "HEAD") return undefined;
  return connectError(request, answer);
}

/** The error of a unary call by Connect. */
function connectError({ rpc, path }: FuzzRequest, answer: Answer): ConnectError | undefined {
  const { code: name, message } = JSON.parse(text(answer)) as { code?: string; message?: string };
  // A path that names no method is answered as REST answers.
  if (name === undefined && path.split("?")[0] !== `/${rpc?.parent.typeName}/${rpc?.name}`) return undefined;
  const code = codeFromString(name ?? "");
  const doesAgree =
    code !== undefined &&
    (codeToHttpStatus(code) === answer.status ||
      (code === Code.Unimplemented && UNIMPLEMENTED_STATUSES.includes(answer.status)) ||
      // Of a message that is too large, which is not to be sent again.
      (code === Code.ResourceExhausted && answer.status === 413));
  if (!doesAgree) throw new Wrong(`status ${answer.status} with code ${name}`, { cause: text(answer) });
  return new ConnectError(message ?? "", code);
}

/** What the envelope with the flag holds. */
function endOf(answer: Answer, flag: number, encodingHeader: string): Buffer | undefined {
  const { body, headers, isWhole } = answer;
  for (let at = 0; at + 5 <= body.length; ) {
    const flags = body.readUInt8(at);
    const end = at + 5 + body.readUInt32BE(at + 1);
    const data = body.subarray(at + 5, end);
    if (flags & flag) return flags & COMPRESSED_FLAG ? unpacked(headers[encodingHeader], data) : data;
    at = end;
  }
  if (isWhole) throw new Wrong("no end of the stream", { cause: text(answer) });
  return undefined;
}

function unpacked(encoding: string | undefined, bytes: Buffer): Buffer {
  if (encoding === "gzip") return gunzipSync(bytes);
  return encoding === "br" ? brotliDecompressSync(bytes) : bytes;
}

function text({ headers, body }: Answer): string {
  return body.length === 0 ? "" : unpacked(headers["content-encoding"], body).toString();
}
