import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Server, Socket } from "node:net";
import { answerHeaderLines } from "./listeners/answer-headers.ts";
import { failureEnvelope, JSON_CONTENT_TYPE, rawFailure } from "./rest/envelope.ts";

/** What Node's parser found wrong, for people. */
const MESSAGES: Record<string, string> = {
  HPE_HEADER_OVERFLOW: "the request line and headers are too large",
  ERR_HTTP_REQUEST_TIMEOUT: "the request did not arrive in time",
};

/** Answers what is not valid HTTP in the envelope; Node would answer without. */
export function answerMalformed(error: NodeJS.ErrnoException, socket: Socket): void {
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy();
    return;
  }
  const message = MESSAGES[error.code ?? ""] ?? "the request is not valid HTTP";
  socket.end(rawFailure(message, answerHeaderLines(socket)), () => socket.destroy());
}

/** Answers in the envelope where Node itself would answer, or hang up, before the framework sees the request. */
export function answerWhatNodeRefuses(server: Server): void {
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    const body = failureEnvelope(`Expect: ${request.headers.expect} is not supported; leave the header out`);
    response.writeHead(400, STATUS_CODES[400], { "Content-Type": JSON_CONTENT_TYPE }).end(body);
  });
  server.on("connect", (_request: IncomingMessage, socket: Socket) => {
    socket.end(rawFailure("CONNECT is not supported", answerHeaderLines(socket)), () => socket.destroy());
  });
}
