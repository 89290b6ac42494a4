import { Socket } from "node:net";
import pg from "pg";

/** How long the server may take to act on a request, in milliseconds. */
const TIMEOUT_MS = 5_000;

/** What pg's client knows of its connection; its types leave most of it out. */
export interface ConnectedClient {
  host: string;
  port: number;
  ssl: boolean | object;
  sslNegotiation: string;
  processID: number;
  secretKey: number;
  connection: { stream: Socket };
}

/** pg's connection, with the parts that its types leave out. */
interface PgConnection extends pg.Connection {
  connect(port: number | string, host?: string): void;
  requestSsl(): void;
  cancel(processID: number, secretKey: number): void;
}

/**
 * Asks the server to cancel the statement that a connection runs, by the protocol's CancelRequest: over a connection
 * to the same address, with TLS where the client uses TLS. A pooler finds the server's connection by the key that it has given
 * the client. `pg_cancel_backend` would not do: the process id that a pooler tells is made up, and may be that of another
 * session.
 *
 * Resolves when the server has acted: a request cancels nothing later. One that finds no statement under way has no effect.
 *
 * @throws Error when the server cannot be reached or has not acted within 5 seconds
 */
export function requestCancel(client: ConnectedClient): Promise<void> {
  const { host, port, ssl, sslNegotiation, processID, secretKey } = client;
  const socket = new Socket();
  // A host name may stand for several servers, and only the one that gave the key knows it.
  const { remoteAddress } = client.connection.stream;
  if (remoteAddress !== undefined) {
    const connect = socket.connect.bind(socket);
    Object.assign(socket, { connect: (to: number) => connect(to, remoteAddress) });
  }
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
