import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import type { Certificate } from "./certificates.ts";

/** One POST as a receiver got it. */
export interface ReceivedRequest {
  path: string;
  /** Names in the case they were sent with, in order. */
  rawHeaders: string[];
  headers: IncomingMessage["headers"];
  body: string;
  at: Date;
  /** From 1: which request with this X-Service-Webhook-Id it is. */
  attempt: number;
}

/** What a receiver answers: a status, or full control of the response. */
export type Reply = (
  request: ReceivedRequest,
  response: ServerResponse,
) => number | Promise<number> | undefined | Promise<undefined>;

/** A local HTTPS receiver. */
export interface Receiver {
  /** `https://localhost:port`. */
  url: string;
  port: number;
  received: ReceivedRequest[];
  /** Resolves with everything received once `condition` holds for it. */
  until(condition: (received: ReceivedRequest[]) => boolean): Promise<ReceivedRequest[]>;
  close(): Promise<void>;
}

/**
 * Starts an HTTPS receiver on 127.0.0.1.
 *
 * @param reply the status to answer; when it answers undefined it has dealt with the response itself
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

/** A request cut short by its sender counts as what came of it. */
async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of request) chunks.push(chunk as Buffer);
  } catch {
    // The sender has gone; what it sent until then is what there is.
  }
  return Buffer.concat(chunks).toString("utf8");
}
