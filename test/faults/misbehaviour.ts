import { setTimeout as wait } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import type { Reply } from "../../demo/receiver.ts";

/** Unpacks to a thousand times its size, and stays below what is read of a response while it is packed. */
export const GZIP_BOMB = gzipSync(Buffer.alloc(48 * 1024 * 1024));

/** Answers the status the first time and 200 from then on. */
export function recovers(status: number, headers: () => Record<string, string>): Reply {
  return (request, response) => (request.attempt > 1 ? 200 : answers(status, headers())(request, response));
}

/** Answers a status with headers and a short text. */
export function answers(status: number, headers: Record<string, string> = {}): Reply {
  return (_request, response) => {
    response.writeHead(status, headers).end(`answered ${status}`);
    return undefined;
  };
}

/** Answers a status, promises a long body, sends half of it and breaks the connection. */
export function resetsAmid(status: number): Reply {
  return (_request, response) => {
    response.writeHead(status, { "content-length": "100" }).write("half", () => response.socket?.destroy());
    return undefined;
  };
}

/** Breaks the connection in the place of a response. */
export const resets: Reply = (_request, response) => {
  response.socket?.destroy();
  return undefined;
};

/** Sends the headers and then a byte a second for as long as somebody listens. */
export const byteASecond: Reply = async (_request, response) => {
  response.writeHead(200);
  while (!response.destroyed) {
    response.write("x");
    await wait(1_000);
  }
  return undefined;
};

/** Sends a compressed body that is small on the way and huge when unpacked. */
export const gzipBomb: Reply = (_request, response) => {
  response.writeHead(200, { "content-encoding": "gzip", "content-type": "text/plain" }).end(GZIP_BOMB);
  return undefined;
};
