import { Socket } from "node:net";
import pg from "pg";
import { socketTo } from "./connect.ts";

/** The timeout for the server to act on a request, in milliseconds. */
const TIMEOUT_MS = 5_000;

/** The parts of pg's client that its types omit. */
export interface ConnectedClient {
  host: string;
  port: number;
  ssl: boolean | object;
  sslNegotiation: string;
  processID: number;
  secretKey: number;
  connection: { stream: Socket };
}

/** pg's connection, including the parts that its types omit. */
interface PgConnection extends pg.Connection {
  connect(port: number | string, host?: string): void;
  requestSsl(): void;
  cancel(processID: number, secretKey: number): void;
}

/**
 * Cancels the statement that a connection runs, with the protocol's CancelRequest: over a new connection to the same
 * address, with TLS if the client uses TLS. A pooler finds the server connection by the key that it gave to the
 * client. `pg_cancel_backend` does not work: the process id that a pooler reports is made up and may belong to
 * another session.
 *
 * Resolves when the server has acted, so that nothing is cancelled later. Has no effect if no statement is running.
 *
 * @throws Error if the server is unreachable or has not acted within 5 seconds
 */
export function requestCancel(client: ConnectedClient): Promise<void> {
  const { host, port, ssl, sslNegotiation, processID, secretKey } = client;
  // A host name may resolve to several servers, and only the one that issued the key knows it.
  const { remoteAddress } = client.connection.stream;
  const socket = remoteAddress === undefined ? new Socket() : socketTo(remoteAddress);
  const options = { ssl, sslNegotiation, stream: socket } as unknown as pg.ConnectionConfig;
  const request = new pg.Connection(options) as PgConnection;
  return new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new Error(`the server has not acted on a CancelRequest within ${TIMEOUT_MS} ms`));
      socket.destroy();
    }, TIMEOUT_MS);
    const send = () => request.cancel(processID, secretKey);
    request.once("connect", () => {
      if (!ssl) send();
      else if (sslNegotiation !== "direct") request.requestSsl();
    });
    request.once("sslconnect", send);
    request.on("error", reject);
    request.once("end", () => {
      clearTimeout(timer);
      resolve();
    });
    if (host.startsWith("/")) request.connect(`${host}/.s.PGSQL.${port}`);
    else request.connect(port, host);
  });
}
