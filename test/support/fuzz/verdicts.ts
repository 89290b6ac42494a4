import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { Code } from "@connectrpc/connect";
import { codeFromString, codeToHttpStatus } from "@connectrpc/connect/protocol-connect";
import { expectDescribed } from "../described-answers.ts";
import { DEADLINE_HEADERS } from "./fuzz-headers.ts";
import type { FuzzRequest } from "./fuzz-request.ts";
import type { Answer } from "./senders.ts";

/** What is wrong with an answer. */
export interface Problem {
  /** The same for problems that probably have one cause. */
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

/** What is wrong with the answer to a request; undefined when nothing is. */
export function problemOf(request: FuzzRequest, answer: Answer): Problem | undefined {
  try {
    check(request, answer);
    return undefined;
  } catch (error) {
    if (error instanceof Wrong) return error.problem;
    return { kind: `${request.protocol}: an unreadable answer`, detail: String(error) };
  }
}

class Wrong extends Error {
  readonly problem: Problem;
  constructor(kind: string, detail: string) {
    super(kind);
    this.problem = { kind, detail };
  }
}

function check(request: FuzzRequest, answer: Answer): void {
  const { protocol } = request;
  const { outcome, status } = answer;
  const raw = protocol.startsWith("raw");
  const violatesHttp = isRefusedAsHttp(request);
  if (outcome === "unsendable") return;
  if (outcome === "unanswered") throw new Wrong(`${protocol}: no answer`, `none after ${answer.ms} ms`);
  if (outcome === "closed") {
    if (raw || violatesHttp) return;
    throw new Wrong(`${protocol}: closed without an answer`, answer.error ?? "");
  }
  if (status >= 500 && !(status === 504 && hasDeadline(request))) {
    throw new Wrong(`${protocol}: HTTP ${status}`, `${status} ${text(answer)}`);
  }
  if (raw || violatesHttp || answer.headers["content-type"] === undefined) return;
  if (answer.error) throw new Wrong(`${protocol}: the answer was cut off`, answer.error);
  if (protocol === "REST") checkRest(request, answer);
  else checkRpc(request, answer);
}

/** Whether a request may be refused before anything knows its protocol. */
function isRefusedAsHttp({ over, path, headers }: FuzzRequest): boolean {
  // A stream without a valid authority is reset.
  if (over === "HTTP/2") return "host" in headers;
  return headers.expect === "a" || path.length + JSON.stringify(headers).length > LONG_HEAD;
}

function hasDeadline({ headers }: FuzzRequest): boolean {
  return DEADLINE_HEADERS.some((name) => name in headers);
}

function checkRest({ method, path, headers }: FuzzRequest, answer: Answer): void {
  // A browser that asks for an unknown path gets the settings page.
  if (headers.accept?.includes("text/html")) return;
  try {
    expectDescribed({
      method,
      path,
      status: answer.status,
      header: (name) => answer.headers[name.toLowerCase()],
      text: decoded(answer).toString(),
    });
  } catch (error) {
    throw new Wrong("REST: not as described", (error as Error).message);
  }
}

function checkRpc(request: FuzzRequest, answer: Answer): void {
  const type = answer.headers["content-type"] as string;
  if (type.startsWith("application/grpc-web")) checkGrpcWeb(request, answer);
  else if (type.startsWith("application/grpc")) checkGrpc(request, answer);
  else if (type.startsWith("application/connect+")) checkConnectStream(request, answer);
  else if (answer.status !== 200 && type.startsWith("application/json") && request.method !== "HEAD") {
    checkConnectError(request, answer);
  }
}

function checkConnectError(request: FuzzRequest, answer: Answer): void {
  const { code, message } = JSON.parse(decoded(answer).toString()) as { code?: string; message?: string };
  // A path that names no method is answered as REST answers.
  if (code === undefined && request.path.split("?")[0] !== pathOf(request)) return;
  const found = codeFromString(code ?? "");
  const { protocol } = request;
  if (found === undefined) throw new Wrong(`${protocol}: no code`, text(answer));
  checkCode(request, found, message ?? "");
  const agrees =
    codeToHttpStatus(found) === answer.status ||
    (found === Code.Unimplemented && UNIMPLEMENTED_STATUSES.includes(answer.status));
  if (!agrees) throw new Wrong(`${protocol}: status ${answer.status} with code ${code}`, text(answer));
}

function pathOf({ rpc }: FuzzRequest): string {
  return rpc ? `/${rpc.parent.typeName}/${rpc.name}` : "";
}

function checkConnectStream(request: FuzzRequest, answer: Answer): void {
  const last = endOf(answer, END_STREAM_FLAG, "connect-content-encoding");
  if (!last) {
    if (answer.whole) throw new Wrong(`${request.protocol}: no end of the stream`, text(answer));
    return;
  }
  const { error } = JSON.parse(last.toString()) as { error?: { code: string; message?: string } };
  if (error) checkCode(request, codeFromString(error.code), error.message ?? "");
}

function checkGrpcWeb(request: FuzzRequest, answer: Answer): void {
  if (answer.headers["grpc-status"] !== undefined) {
    checkStatus(request, answer.headers["grpc-status"], answer.headers["grpc-message"]);
    return;
  }
  const last = endOf(answer, TRAILER_FLAG, "grpc-encoding");
  if (!last) {
    if (answer.whole) throw new Wrong(`${request.protocol}: no trailers`, text(answer));
    return;
  }
  const trailers = Object.fromEntries(
    last
      .toString()
      .split("\r\n")
      .map((line) => line.split(/:\s*(.*)/).slice(0, 2)),
  );
  checkStatus(request, trailers["grpc-status"], trailers["grpc-message"]);
}

function checkGrpc(request: FuzzRequest, answer: Answer): void {
  const of = answer.trailers["grpc-status"] === undefined ? answer.headers : answer.trailers;
  if (of["grpc-status"] === undefined && !answer.whole) return;
  checkStatus(request, of["grpc-status"], of["grpc-message"]);
}

function checkStatus(request: FuzzRequest, status: string | undefined, message = ""): void {
  if (status === undefined) throw new Wrong(`${request.protocol}: no grpc-status`, "");
  if (status !== "0") checkCode(request, Number(status), decodeURIComponent(message));
}

function checkCode(request: FuzzRequest, code: Code | undefined, message: string): void {
  const name = code === undefined ? "none" : Code[code];
  const wrong = () => new Wrong(`${request.protocol}: code ${name}: ${message.slice(0, 30)}`, message);
  if (code === undefined || name === undefined || OWN_FAULTS.includes(code)) throw wrong();
  if (code === Code.DeadlineExceeded && !hasDeadline(request)) throw wrong();
}

/** What the envelope with the flag holds; undefined when there is none. */
function endOf(answer: Answer, flag: number, encodingHeader: string): Buffer | undefined {
  const { body, headers } = answer;
  for (let at = 0; at + 5 <= body.length; ) {
    const flags = body.readUInt8(at);
    const end = at + 5 + body.readUInt32BE(at + 1);
    const data = body.subarray(at + 5, end);
    if (flags & flag) return flags & COMPRESSED_FLAG ? unpacked(headers[encodingHeader], data) : data;
    at = end;
  }
  return undefined;
}

function decoded({ headers, body }: Answer): Buffer {
  return body.length === 0 ? body : unpacked(headers["content-encoding"], body);
}

function unpacked(encoding: string | undefined, bytes: Buffer): Buffer {
  if (encoding === "gzip") return gunzipSync(bytes);
  return encoding === "br" ? brotliDecompressSync(bytes) : bytes;
}

function text(answer: Answer): string {
  return decoded(answer).toString().slice(0, 600);
}
