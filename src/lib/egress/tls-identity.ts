import { createHash } from "node:crypto";
import { isIP, Socket } from "node:net";
import { connect, createSecureContext, type SecureContext, type TLSSocket } from "node:tls";
import { LRUCache } from "lru-cache";

/**
 * The maximum total size of the TLS sessions that an HTTP client caches, in bytes: enough for thousands of hosts. The limit is in
 * bytes, because sessions contain the server's certificate and differ in size. A resumed handshake takes a third less of the thread's
 * time than a full one.
 */
const MAX_SESSION_BYTES = 8 * 1_024 * 1_024;
/** The size of the read buffer, in bytes: one TLS record of the maximum size. */
const READ_BUFFER_BYTES = 16_384;
/** The idle time before the first TCP keep-alive probe, in milliseconds. */
const PROBE_DELAY_MS = 60_000;

/** The TLS settings of a connection: a client certificate, and authorities that replace the public ones. */
export interface TlsCredentials {
  /** PEM: the client certificate, then intermediate ones, and its private key, not encrypted. Null for none. */
  client: { certificate: string; key: string } | null;
  /** PEM: the certificates of the only authorities that are trusted; null for the public ones. */
  authorities: string | null;
}

/** TLS settings with an id. Only requests with the same identity share connections and TLS sessions. */
export interface TlsIdentity {
  /** A SHA-256 hash of the settings, in base64: different settings have different ids. Reveals no secret. */
  readonly id: string;
  readonly settings: TlsCredentials;
}

/** Creates the identity of TLS settings; undefined for null. */
export function tlsIdentity(settings: TlsCredentials | null): TlsIdentity | undefined {
  if (settings === null) return undefined;
  return { id: createHash("sha256").update(JSON.stringify(settings)).digest("base64"), settings };
}

/** Creates a cache of sessions to resume, by TLS identity and host name. */
export function createTlsSessions() {
  return new LRUCache<string, Buffer>({
    maxSize: MAX_SESSION_BYTES,
    sizeCalculation: ({ length }) => length,
  });
}

/** The certificates and resumable sessions that the TLS connections of one identity share. HTTP/1.1 only. */
export class TlsContext {
  /** The size of the settings, in characters of PEM; at least 1. */
  readonly size: number;
  /** Shared by all connections, because creating it parses the certificates of all authorities. */
  readonly #secureContext: SecureContext;
  readonly #id: string;
  readonly #sessions: LRUCache<string, Buffer>;

  /**
   * @param identity its authorities replace the public ones. Undefined for no client certificate and the public authorities. Host
   *   names are always verified
   * @param sessions the cache that all identities of a client share. Defaults to a new one
   */
  constructor(identity?: TlsIdentity, sessions = createTlsSessions()) {
    const { client, authorities } = identity?.settings ?? { client: null, authorities: null };
    this.#id = identity?.id ?? "";
    this.size = 1 + (client?.certificate.length ?? 0) + (authorities?.length ?? 0);
    this.#sessions = sessions;
    this.#secureContext = createSecureContext({
      ...(client ? { cert: client.certificate, key: client.key } : {}),
      ...(authorities === null ? {} : { ca: authorities }),
      // An intermediate certificate may be an authority without its root, as for other clients.
      allowPartialTrustChain: true,
    });
  }

  /**
   * Starts TLS. Returns the socket at once: its `secureConnect` event reports the end of the handshake.
   *
   * @param host the name or address that the server's certificate must be valid for
   * @param to an open connection, or the address and port to connect to
   */
  connect(host: string, to: Socket | { address: string; port: number }): TLSSocket {
    // The cache key contains the identity, because a resumed session authenticates with the client certificate that opened it.
    const name = `${this.#id} ${host}`;
    const session = this.#sessions.get(name);
    const socket = connect({
      ...(to instanceof Socket ? { socket: to, host } : { host: to.address, port: to.port }),
      servername: isIP(host) === 0 ? host : "",
      secureContext: this.#secureContext,
      ...(session ? { session } : {}),
      // The default follows NODE_TLS_REJECT_UNAUTHORIZED, which may be set for another part of the process.
      rejectUnauthorized: true,
      ALPNProtocols: ["http/1.1"],
      ...{ highWaterMark: READ_BUFFER_BYTES },
    });
    socket.on("session", (next) => this.#sessions.set(name, next));
    // An error event without a listener would end the process. After the handshake, the caller stops listening before the HTTP
    // client starts.
    socket.on("error", () => {});
    return socket.setNoDelay(true).setKeepAlive(true, PROBE_DELAY_MS);
  }
}
