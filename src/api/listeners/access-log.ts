import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Server } from "node:net";
import type { Logger } from "pino";
import { hideSecrets } from "../../calls/errors/index.ts";
import { KEY_HEADER } from "../../keys/gate/index.ts";

/** Characters of a path that are logged. */
const MAX_PATH = 200;
/** A key that the service made; its first 12 characters are logged, as lists of keys show them. */
const MADE_KEY = /^(whk_[\w-]{8})[\w-]{35}$/;
/** The number of logged characters of a key that a person chose, which may be easier to guess. */
const CHOSEN_PREFIX = 4;
/** A shorter text is no API key, and is not logged at all. */
const MIN_KEY = 32;

/** Logs each request of a listener when its answer has ended: never a query, a body, or the secret part of a key. */
export function logAccess(server: Server, log: Logger): void {
  server.on(
    "request",
    (request: IncomingMessage | Http2ServerRequest, response: ServerResponse | Http2ServerResponse) => {
      const started = performance.now();
      // The response forgets its stream when it is closed.
      const stream = "stream" in response ? response.stream : undefined;
      response.once("close", () => {
        const grpcStatus = stream?.sentTrailers?.["grpc-status"] ?? stream?.sentHeaders?.["grpc-status"];
        log.info(
          {
            method: request.method,
            path: pathOf(request.url ?? ""),
            // Null when the client left before the answer.
            status: response.headersSent ? response.statusCode : null,
            ...(grpcStatus === undefined ? {} : { grpcStatus: Number(grpcStatus) }),
            ms: Math.round(performance.now() - started),
            key: keyOf(request.headers[KEY_HEADER.toLowerCase()]),
          },
          "access",
        );
      });
    },
  );
}

function pathOf(url: string): string {
  return hideSecrets(url.replace(/[?#].*/s, "")).slice(0, MAX_PATH);
}

/** The prefix of the key that a request came with, right or wrong; null without one, as in sessions of the page. */
function keyOf(header: string | string[] | undefined): string | null {
  if (header === undefined) return null;
  const text = String(header);
  const made = MADE_KEY.exec(text)?.[1];
  return made ?? (text.length < MIN_KEY ? "not a key" : text.slice(0, CHOSEN_PREFIX));
}
