import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Logger } from "pino";

/** The path that Prometheus scrapes unless told otherwise. */
export const METRICS_PATH = "/metrics";
/** The path of the liveness check, which callers of the API cannot keep from a connection. */
const HEALTH_PATH = "/healthz";
/** Connections at once: a few scrapers and people. */
const MAX_CONNECTIONS = 50;
/** The maximum time in which a client sends its request, in milliseconds. */
const REQUEST_TIMEOUT_MS = 10_000;

/** The listener of metrics. */
export interface MetricsListener {
  /** The port it got, also when any was asked for. */
  port: number;
  close(): Promise<void>;
}

/**
 * Serves the metrics and the liveness check, to everyone who reaches the port, and nothing else.
 *
 * @param options.port 0: any free one
 * @param options.render writes the metrics in the text format of Prometheus
 */
export async function listenForMetrics(options: {
  host: string;
  port: number;
  render: () => Promise<string>;
  log: Logger;
}): Promise<MetricsListener> {
  const { host, port, render, log } = options;
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    // What is sent is not read, and the connection ends with the answer.
    if (request.method !== "GET") response.setHeader("Connection", "close");
    const answer = (status: number, type: string, body: string) =>
      response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
    const path = ["GET", "HEAD"].includes(request.method ?? "") ? request.url?.split("?", 1)[0] : undefined;
    if (path === HEALTH_PATH) {
      answer(200, "application/json; charset=utf-8", JSON.stringify({ status: "alive" }));
      return;
    }
    if (path !== METRICS_PATH) {
      answer(404, "text/plain; charset=utf-8", `Not found. The metrics are at GET ${METRICS_PATH}.\n`);
      return;
    }
    render().then(
      (text) => answer(200, "text/plain; version=0.0.4; charset=utf-8", text),
      (err: unknown) => {
        log.error({ err }, "metrics could not be written");
        answer(
          500,
          "text/plain; charset=utf-8",
          "The metrics could not be written; see the service's log.\n",
        );
      },
    );
  });
  server.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) =>
      reject(
        new Error(`cannot listen on port ${port} (${cause.code}); set METRICS_PORT to another port`, {
          cause,
        }),
      ),
    );
    server.listen(port, host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      return closed;
    },
  };
}
