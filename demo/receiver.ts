import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import type { Certificate } from "./certificates.ts";

/** A POST that a receiver got. */
export interface ReceivedRequest {
  method: string;
  path: string;
  /** Header names and values as sent, in order. */
  rawHeaders: string[];
  headers: IncomingMessage["headers"];
  body: string;
  at: Date;
  /** The number of requests so far with this X-Service-Webhook-Id, starting at 1. */
  attempt: number;
}

/** A receiver's response: a status, or a function that writes the response. */
export type Reply = (
  request: ReceivedRequest,
  response: ServerResponse,
) => number | undefined | Promise<number | undefined>;

/** A local HTTPS receiver. */
export interface Receiver {
  /** `https://localhost:port`. */
  url: string;
  port: number;
  received: ReceivedRequest[];
  /** Resolves with all received requests when `condition` is true for them. */
  until(condition: (received: ReceivedRequest[]) => boolean): Promise<ReceivedRequest[]>;
  close(): Promise<void>;
}

/**
 * Starts an HTTPS receiver on 127.0.0.1.
 *
 * @param reply returns the status; undefined if it has written the response itself
 */
export async function startReceiver(
  certificate: Certificate,
  reply: Reply = () => 200,
  port = 0,
): Promise<Receiver> {
  const received: ReceivedRequest[] = [];
  const seen = new Map<string, number>();
  const watchers = new Set<() => void>();

  const server: Server = createServer({ ...certificate, keepAlive: true }, async (request, response) => {
    const body = await readBody(request);
    const id = String(request.headers["x-service-webhook-id"]);
    const attempt = (seen.get(id) ?? 0) + 1;
    seen.set(id, attempt);
    const entry: ReceivedRequest = {
      method: request.method ?? "",
      path: request.url ?? "",
      rawHeaders: request.rawHeaders,
      headers: request.headers,
      body,
      at: new Date(),
      attempt,
    };
    received.push(entry);
    const status = await reply(entry, response);
    if (status !== undefined)
      response.writeHead(status, { "content-type": "text/plain" }).end(`answered ${status}`);
    for (const watch of watchers) watch();
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  const bound = (server.address() as AddressInfo).port;
  return {
    url: `https://localhost:${bound}`,
    port: bound,
    received,
    until(condition) {
      return new Promise((resolve) => {
        const check = () => {
          if (!condition(received)) return;
          watchers.delete(check);
          resolve(received);
        };
        watchers.add(check);
        check();
      });
    },
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

/** Reads a body. For a request aborted by its sender, returns the part received. */
async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of request) chunks.push(chunk as Buffer);
  } catch {
    // The sender closed the connection. Use what was received.
  }
  return Buffer.concat(chunks).toString("utf8");
}
